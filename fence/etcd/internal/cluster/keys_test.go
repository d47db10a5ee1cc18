package cluster

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyspace_NoQueueReachesIntoAnother(t *testing.T) {
	names := []string{"a", "a/", "a/b", "/a", "a%2Fb", "a%", "a%2F", "A", "ä", "a\u0308", " ", ".", "..", "a b", "a+b", "a?b", "a#b", "世界", strings.Repeat("x", 512)}
	k := Space{Prefix: "p"}
	for i, a := range names {
		require.Equal(t, 3, strings.Count(k.Queue(a), "/"), a)
		for j, b := range names {
			if i != j {
				require.False(t, strings.HasPrefix(k.Queue(b)+k.Name(7, 1), k.Queue(a)), "%q reaches into %q", a, b)
			}
		}
	}
}

func TestSpace_ReadsWhatItWroteAndNothingElse(t *testing.T) {
	k := Space{Prefix: "p"}
	id, number, ok := k.ParseName(k.Name(255, 12))
	require.True(t, ok)
	require.EqualValues(t, 255, id)
	require.EqualValues(t, 12, number)
	for _, name := range []string{"", "ff", "ff-", "-1", "ff-1-2", "x-1", "ff-99999999999"} {
		_, _, ok := k.ParseName(name)
		require.False(t, ok, name)
	}
	text, err := LockValue{Holder: "me-1"}.Encode()
	require.NoError(t, err)
	require.Equal(t, "me-1", HolderIn([]byte(text)))
	require.Empty(t, HolderIn([]byte("not JSON")))
	require.Empty(t, HolderIn(nil))
	for _, resource := range []string{"a", "sku/42", "a%2Fb", " ", ".", "世界"} {
		got, ok := k.ParseQueue(k.Queue(resource) + k.Name(7, 1))
		require.True(t, ok)
		require.Equal(t, resource, got)
	}
	for _, key := range []string{"", "p/locks/", "p/locks//1-1", "p/locks/a", "q/locks/a/1-1", "p/locks/%zz/1-1", "p/void/a/1-1"} {
		_, ok := k.ParseQueue(key)
		require.False(t, ok, key)
	}
	k.Mutex = true
	_, _, ok = k.ParseName("ff-12")
	require.False(t, ok)
	_, ok = k.ParseQueue("p/locks/a/1-1")
	require.False(t, ok)
}

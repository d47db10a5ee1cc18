package etcd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyspace_NoQueueReachesIntoAnother_HD15(t *testing.T) {
	names := []string{"a", "a/", "a/b", "/a", "a%2Fb", "a%", "a%2F", "A", "ä", "a\u0308", " ", ".", "..", "a b", "a+b", "a?b", "a#b", "世界", strings.Repeat("x", 512)}
	k := keyspace{prefix: "p"}
	for i, a := range names {
		require.Equal(t, 3, strings.Count(k.queue(a), "/"), a)
		for j, b := range names {
			if i != j {
				require.False(t, strings.HasPrefix(k.lock(b, 7, "n"), k.queue(a)), "%q reaches into %q", a, b)
			}
		}
	}
}

func TestKeyspace_IsReadable(t *testing.T) {
	k := keyspace{prefix: "p"}
	require.Equal(t, "p/locks/sku%2F42/ff-n", k.lock("sku/42", 255, "n"))
	require.Equal(t, "p/void/1f/0000000000000020", k.void(0x1f, 0x20))
	require.Equal(t, "p/epoch", k.epoch())
}

func TestHolderIn_ReadsWhatWasWrittenAndNothingElse(t *testing.T) {
	text, err := lockValue{Holder: "me-1"}.encode()
	require.NoError(t, err)
	require.Equal(t, "me-1", holderIn([]byte(text)))
	require.Empty(t, holderIn([]byte("not JSON")))
	require.Empty(t, holderIn(nil))
}

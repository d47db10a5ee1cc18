package transport_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/transport"
)

var key, other = bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)

func signed(t *testing.T, key []byte, grants ...fence.Grant) []string {
	t.Helper()
	values, err := transport.SignGrants(key, grants)
	require.NoError(t, err)
	return values
}

func TestParseSignedGrants_TakesWhatOneOfTheKeysHasSigned(t *testing.T) {
	t.Parallel()
	all := []fence.Grant{of("a; b"), of("b"), of("größe:1, 2")}
	values := signed(t, key, all...)
	for _, values := range [][]string{values, {strings.Join(values, " , ")}} {
		grants, err := transport.ParseSignedGrants(values, [][]byte{other, key})
		require.NoError(t, err)
		require.Equal(t, all, grants)
		require.Equal(t, all, transport.SentGrants(values))
	}
	_, err := transport.ParseGrants(values)
	require.ErrorAs(t, err, new(*fence.InvalidGrantError), "a receiver that doesn't look at signatures takes none for verified")
	grants, err := transport.ParseSignedGrants(nil, [][]byte{key})
	require.NoError(t, err)
	require.Empty(t, grants)
}

// Each is a grant whose sender has the right signature of another one, or none.
func TestParseSignedGrants_RejectsAllThatWasNotSigned(t *testing.T) {
	t.Parallel()
	g := fence.Grant{Resource: "ab", Epoch: 1, Token: 23, Holder: "cd"}
	text, sum, _ := strings.Cut(signed(t, key, g)[0], ";")
	for name, forged := range map[string]fence.Grant{
		"token":          {Resource: "ab", Epoch: 1, Token: 23 + 1_000_000_000, Holder: "cd"},
		"epoch":          {Resource: "ab", Epoch: 11, Token: 23, Holder: "cd"},
		"resource":       {Resource: "ac", Epoch: 1, Token: 23, Holder: "cd"},
		"holder":         {Resource: "ab", Epoch: 1, Token: 23, Holder: "ce"},
		"moved digits":   {Resource: "ab", Epoch: 12, Token: 3, Holder: "cd"},
		"moved letters":  {Resource: "a", Epoch: 1, Token: 23, Holder: "bcd"},
		"swapped names":  {Resource: "cd", Epoch: 1, Token: 23, Holder: "ab"},
		"digit of names": {Resource: "ab1", Epoch: 23, Token: 2, Holder: "cd"},
	} {
		_, err := transport.ParseSignedGrants([]string{forged.String() + ";" + sum}, [][]byte{key})
		var unsigned *transport.SignatureError
		require.ErrorAs(t, err, &unsigned, name)
		require.Equal(t, forged, unsigned.Grant, name)
		require.ErrorIs(t, err, fence.ErrInvalid, name)
		require.Same(t, transport.UnsignedGrant, transport.Of(err), name)
	}
	for name, value := range map[string]string{
		"none":              text,
		"an empty one":      text + ";",
		"part of one":       text + ";" + sum[:20],
		"one more byte":     text + ";" + sum + "AA",
		"in other letters":  text + ";" + strings.ToLower(sum),
		"twice":             text + ";" + sum + ";" + sum,
		"of another key":    signed(t, other, g)[0],
		"of another's hash": text + ";" + strings.Repeat("A", 43),
	} {
		grants, err := transport.ParseSignedGrants([]string{signed(t, key, of("b"))[0], value}, [][]byte{key})
		require.ErrorAs(t, err, new(*transport.SignatureError), name)
		require.Empty(t, grants, name)
	}
}

// A setting that is missing must not turn the check off.
func TestSignedGrants_NeedKeys(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][][]byte{"none": nil, "an empty one": {{}}, "a short one": {key, make([]byte, 15)}} {
		_, err := transport.ParseSignedGrants(nil, keys)
		require.ErrorIs(t, err, fence.ErrInvalid, name)
		require.Same(t, transport.Internal, transport.Of(err), name)
	}
	_, err := transport.SignGrants(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalid)
}

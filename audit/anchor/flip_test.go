package anchor_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit/anchor"
)

// flips calls check with text with each of its bits flipped in turn, and with each byte
// removed, and with each byte twice.
func flips(text string, check func(changed string)) {
	for i := range len(text) {
		for bit := range 8 {
			changed := []byte(text)
			changed[i] ^= 1 << bit
			check(string(changed))
		}
		check(text[:i] + text[i+1:])
		if doubled := text[:i+1] + text[i:]; doubled != text {
			check(doubled)
		}
	}
}

func TestReadHeads_FindsEachBitThatChanged(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	flips(string(s.log(t)), func(changed string) {
		if strings.HasPrefix(changed, string(s.log(t))) {
			return // a line after what was signed
		}
		_, err := anchor.ReadHeads(strings.NewReader(changed), s.last())
		require.ErrorIs(t, err, anchor.ErrNotProven, changed)
	})
}

// What the signature covers can't change. Of the signature itself only how it is written can:
// base64 has unused bits at the end.
func TestParseCheckpoint_FindsEachBitThatChanged(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	signed := s.last().Note
	flips(signed, func(changed string) {
		c, err := anchor.ParseCheckpoint(changed, s.key)
		if err == nil {
			require.Equal(t, signed[:len(signed)-3], changed[:len(changed)-3])
			c.Note = signed
			require.Equal(t, s.last(), c)
			return
		}
		require.ErrorIs(t, err, anchor.ErrNotProven, changed)
	})
}

func TestParseProof_FindsEachBitThatChanged(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	for _, resource := range []string{"a", "b", "c"} {
		text, err := anchor.Prove(bytes.NewReader(s.log(t)), s.last(), resource)
		require.NoError(t, err)
		flips(text, func(changed string) {
			_, err := anchor.ParseProof(changed, s.key)
			if err == nil {
				require.Equal(t, text[:len(text)-3], changed[:len(changed)-3])
				return
			}
			require.ErrorIs(t, err, anchor.ErrNotProven, changed)
		})
	}
}

// A key that changed is no key, or only written in another way: its id in capitals.
func TestParseKeys_FindEachBitThatChanged(t *testing.T) {
	t.Parallel()
	private, public, err := anchor.NewKey(origin)
	require.NoError(t, err)
	flips(public, func(changed string) {
		if key, err := anchor.ParsePublicKey(changed); err == nil {
			require.True(t, strings.EqualFold(public, changed), changed)
			require.Equal(t, origin, key.Name())
		}
	})
	flips(private, func(changed string) {
		signer, err := anchor.ParseSigner(changed)
		if err == nil {
			require.True(t, strings.EqualFold(private, changed), changed)
			require.Equal(t, origin, signer.Name())
			return
		}
		require.NotContains(t, err.Error(), changed[len(changed)-20:], "a private key")
	})
}

package anchor_test

import (
	"bytes"
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

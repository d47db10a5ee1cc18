package anchor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/fence"
)

func TestParseCheckpoint_RefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	signer, key := newKey(t)
	_, other := newKey(t)
	root := tlog.Hash{1}.String()
	sign := func(text string) string {
		signed, err := note.Sign(&note.Note{Text: text}, signer)
		require.NoError(t, err)
		return string(signed)
	}
	good := sign(fmt.Sprintf("%s\n7\n%s\n", origin, root))
	c, err := anchor.ParseCheckpoint(good, key)
	require.NoError(t, err)
	require.EqualValues(t, 7, c.Size)
	_, err = anchor.ParseCheckpoint(sign(fmt.Sprintf("%s\n7\n%s\nmore\n", origin, root)), key)
	require.NoError(t, err, "extension lines are allowed")
	_, err = anchor.ParseCheckpoint(good, other)
	require.ErrorIs(t, err, anchor.ErrNotProven)
	for _, text := range []string{
		"", "\n", origin + "\n7\n", "other\n7\n" + root + "\n", origin + "\n-1\n" + root + "\n", origin + "\n07\n" + root + "\n", origin + "\n+7\n" + root + "\n",
		origin + "\n99999999999999999999\n" + root + "\n", origin + "\n7\n" + root[1:] + "\n", origin + "\n7\n\n" + root + "\n",
	} {
		if text != "" {
			text = sign(text)
		}
		_, err := anchor.ParseCheckpoint(text, key)
		require.ErrorIs(t, err, anchor.ErrNotProven, text)
	}
}

func TestNewKey_RefusesNamesThatANoteCannotHave(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a b", "a+b", "a\nb", "a\x01b", "a\u00a0b", "\xff"} {
		_, _, err := anchor.NewKey(name)
		require.ErrorIs(t, err, fence.ErrInvalid, "%q", name)
	}
	for _, text := range []string{"", "PRIVATE+KEY+a+b+c", "hello"} {
		_, err := anchor.ParseSigner(text)
		require.ErrorIs(t, err, fence.ErrInvalid)
		_, err = anchor.ParsePublicKey(text)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
}

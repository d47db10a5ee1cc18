package anchor_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/fence"
)

// continued opens a new log that continues a sample.
func continued(t *testing.T, s *sample, path string, signer *anchor.Signer) *anchor.Log {
	t.Helper()
	log, err := anchor.Create(path, signer)
	require.NoError(t, err)
	require.NoError(t, log.Continue(s.path, s.key))
	return log
}

// A new log begins with the last checkpoint of the one that it continues, and has the heads of
// all resources.
func TestContinue_GoesOnWhereTheOtherOneEnded(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	s.source.move("a")
	signer, key := newKeyNamed(t, "example.com/shop/2")
	path := filepath.Join(t.TempDir(), "heads2")
	log := continued(t, s, path, signer)
	done, err := log.Anchor(t.Context(), s.source)
	require.NoError(t, err)
	require.Empty(t, done.Violations)
	require.Equal(t, 4, done.Recorded)
	require.EqualValues(t, 5, done.Checkpoint.Size)
	require.ErrorIs(t, log.Continue(s.path, s.key), fence.ErrInvalid, "only a new log")
	require.NoError(t, log.Close())

	first, _, _ := bytes.Cut(readFile(t, path), []byte("\n"))
	var link struct{ Continues string }
	require.NoError(t, json.Unmarshal(first, &link))
	c, err := anchor.ParseCheckpoint(link.Continues, s.key)
	require.NoError(t, err)
	require.Equal(t, s.last(), c)
	heads, err := anchor.ReadHeads(bytes.NewReader(readFile(t, path)), done.Checkpoint)
	require.NoError(t, err)
	require.Len(t, heads, 4)
	_, err = anchor.Prove(bytes.NewReader(readFile(t, path)), done.Checkpoint, "")
	require.ErrorIs(t, err, fence.ErrInvalid)

	require.Zero(t, run(t, path, signer, s.source).Recorded, "the link is no head")
	third, _ := newKeyNamed(t, "example.com/shop/3")
	log, err = anchor.Create(path+"3", third)
	require.NoError(t, err)
	require.NoError(t, log.Continue(path, key))
	done, err = log.Anchor(t.Context(), s.source)
	require.NoError(t, err)
	require.Empty(t, done.Violations, "the link of the log that is continued is no resource")
	require.NoError(t, log.Close())
}

// What went back since the last run of the log that is continued is found, and not recorded as
// if it were new.
func TestContinue_RecordsNothingIfTheDatabaseContradictsTheOtherOne(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	b := s.source.head("b")
	s.source["b"] = s.source["b"][:1]
	s.source.move("a")
	signer, _ := newKeyNamed(t, "example.com/shop/2")
	path := filepath.Join(t.TempDir(), "heads2")
	for _, path := range []string{path, path + "3"} {
		log := continued(t, s, path, signer)
		done, err := log.Anchor(t.Context(), s.source)
		require.NoError(t, err)
		require.Equal(t, []anchor.Violation{{b, s.source.head("b")}}, done.Violations)
		require.Zero(t, done.Recorded)
		require.Zero(t, done.Checkpoint.Size)
		require.NoError(t, log.Close())
		require.Empty(t, readFile(t, path))
	}
}

package anchor_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/testenv"
)

// What was anchored is read back, with each of the checkpoints and with all together.
func TestLog_RecordsTheHeadsThatMoved(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	require.Equal(t, []int64{3, 4, 7}, []int64{s.checkpoints[0].Size, s.checkpoints[1].Size, s.checkpoints[2].Size})

	heads, err := anchor.ReadHeads(bytes.NewReader(s.log(t)), s.checkpoints...)
	require.NoError(t, err)
	require.Len(t, heads, 7)
	require.Equal(t, []audit.Head{s.source.head("a"), s.source.head("b"), s.source.head("c")}, heads[4:])
	require.Equal(t, s.source["b"][1], heads[3].Hash)
	require.Equal(t, "sku/1 <\u2028\x01>", heads[2].Resource)

	heads, err = anchor.ReadHeads(bytes.NewReader(s.log(t)), s.checkpoints[1], s.checkpoints[0])
	require.NoError(t, err)
	require.Len(t, heads, 4, "what no checkpoint covers proves nothing")
	_, err = anchor.ReadHeads(bytes.NewReader(s.log(t)))
	require.ErrorIs(t, err, fence.ErrInvalid)
}

// Checkpoints of a log that was rewritten in itself consistently don't match those that were
// taken before.
func TestReadHeads_FindsALogThatWasRewritten(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	forged := filepath.Join(t.TempDir(), "heads")
	s.source["b"][0][5] ^= 1
	last := run(t, forged, s.signer, s.source).Checkpoint
	text := readFile(t, forged)
	_, err := anchor.ReadHeads(bytes.NewReader(text), last)
	require.NoError(t, err, "the new log alone is consistent")
	_, err = anchor.ReadHeads(bytes.NewReader(text), last, s.checkpoints[0])
	require.ErrorIs(t, err, anchor.ErrNotProven)
	require.ErrorContains(t, err, "the first 3 records of the log are not those that the checkpoint was signed for")
}

func TestReadHeads_FindsALogThatWasCutOff(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	text := s.log(t)
	for n := range text {
		_, err := anchor.ReadHeads(bytes.NewReader(text[:n]), s.last())
		require.ErrorIs(t, err, anchor.ErrNotProven, "%d bytes", n)
	}
	_, err := anchor.ReadHeads(bytes.NewReader(text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]), s.last())
	require.ErrorContains(t, err, "the log ends after 6 records, and a checkpoint covers 7")
}

// Wherever a run was cut off, the next one goes on, and signs what all earlier checkpoints
// match.
func TestOpen_GoesOnAfterAnInterruptedRun(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	signed, checkpoint := s.log(t), readFile(t, anchor.CheckpointFile(s.path))
	s.source.move("a", "c", "d")
	run(t, s.path, s.signer, s.source)
	whole := s.log(t)
	for n := len(signed); n <= len(whole); n++ {
		writeFile(t, s.path, whole[:n])
		writeFile(t, anchor.CheckpointFile(s.path), checkpoint)
		last := run(t, s.path, s.signer, s.source).Checkpoint
		heads, err := anchor.ReadHeads(bytes.NewReader(s.log(t)), append(s.checkpoints, last)...)
		require.NoError(t, err, "%d bytes", n)
		require.Equal(t, []audit.Head{s.source.head("a"), s.source.head("c"), s.source.head("d")}, heads[7:])
	}
}

// A crash of the machine may leave anything where records were not synced yet.
func TestOpen_RemovesWhatIsNoRecordBehindTheCheckpoint(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	signed := s.log(t)
	for _, rest := range []string{"\x00\x00\x00", "\n", "{}\n", `{"at":"2026-01-02T03:04:05Z","resource":"a","seq":`, "\x00\n" + string(signed)} {
		writeFile(t, s.path, append(bytes.Clone(signed), rest...))
		require.Equal(t, s.last(), run(t, s.path, s.signer, s.source).Checkpoint)
		require.Equal(t, signed, s.log(t))
	}
}

func TestOpen_RefusesALogThatIsNotWhatWasSigned(t *testing.T) {
	t.Parallel()
	other, _ := newKeyNamed(t, "example.com/other")
	namesake, _ := newKey(t)
	for name, c := range map[string]struct {
		change func(t *testing.T, s *sample)
		says   string
	}{
		"a byte changed": {func(t *testing.T, s *sample) { text := s.log(t); text[70] ^= 1; writeFile(t, s.path, text) }, ""},
		"a record removed": {func(t *testing.T, s *sample) {
			text := s.log(t)
			writeFile(t, s.path, text[bytes.IndexByte(text, '\n')+1:])
		}, "the log ends after 6 records"},
		"an older log":              {func(t *testing.T, s *sample) { text := s.log(t); writeFile(t, s.path, text[:len(text)-10]) }, "line 7 of the log is no record"},
		"an empty log":              {func(t *testing.T, s *sample) { writeFile(t, s.path, nil) }, "the log ends after 0 records"},
		"no checkpoint":             {func(t *testing.T, s *sample) { require.NoError(t, os.Remove(anchor.CheckpointFile(s.path))) }, "is missing: restore it, or begin another log"},
		"another key":               {func(_ *testing.T, s *sample) { s.signer = other }, "is not one that key example.com/other+"},
		"another key of this name":  {func(_ *testing.T, s *sample) { s.signer = namesake }, "is not one that key example.com/shop+"},
		"a checkpoint that is none": {func(t *testing.T, s *sample) { writeFile(t, anchor.CheckpointFile(s.path), []byte("hello\n")) }, "malformed note"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSample(t)
			c.change(t, s)
			_, err := anchor.Open(s.path, s.signer)
			require.ErrorIs(t, err, anchor.ErrNotProven)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, s.path)
		})
	}
}

func TestOpen_OneAtATime(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	log, err := anchor.Open(s.path, s.signer)
	require.NoError(t, err)
	_, err = anchor.Open(s.path, s.signer)
	require.ErrorIs(t, err, anchor.ErrInUse)
	s.source.move("a")
	_, err = log.Anchor(t.Context(), s.source)
	require.NoError(t, err)
	require.NoError(t, log.Close())
	run(t, s.path, s.signer, s.source)
}

// What rotates the logs of a machine may take this one for one of them.
func TestAnchor_RefusesAFileThatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"moved away": func(path string) error { return os.Rename(path, path+".1") },
		"replaced": func(path string) error {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return errors.Join(os.Remove(path), os.WriteFile(path, text, 0o600))
		},
		"emptied": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSample(t)
			log, err := anchor.Open(s.path, s.signer)
			require.NoError(t, err)
			defer func() { require.NoError(t, log.Close()) }()
			require.NoError(t, change(s.path))
			s.source.move("a")
			_, err = log.Anchor(t.Context(), s.source)
			require.Error(t, err)
			require.Equal(t, s.last().Note, string(readFile(t, anchor.CheckpointFile(s.path))))
		})
	}
}

// A violation is reported by each run, however the resource moves on, and its record stays the
// last good one. The other resources are recorded.
func TestAnchor_ReportsWhatTheDatabaseContradicts(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	a, b, c := s.source.head("a"), s.source.head("b"), s.source.head("c")
	s.source["a"] = s.source["a"][:1]
	s.source["b"][len(s.source["b"])-1] = [32]byte{1}
	delete(s.source, "c")
	s.source.move("sku/1 <\u2028\x01>")
	gone := anchor.Violation{Logged: c}

	done := run(t, s.path, s.signer, s.source)
	require.Equal(t, []anchor.Violation{{a, s.source.head("a")}, {b, s.source.head("b")}, gone}, done.Violations)
	require.Equal(t, 1, done.Recorded)
	require.Equal(t, "a went back: the log has position 2, the database 1", done.Violations[0].String())
	require.Contains(t, done.Violations[1].String(), "b was rewritten: at position 3 the log has hash ")
	require.Equal(t, "c is gone: the log has position 1", gone.String())

	rewritten := audit.Head{Resource: "a", Seq: 2, Hash: [32]byte{2}}
	s.source["a"] = append(s.source["a"], rewritten.Hash, [32]byte{3}, [32]byte{4})
	s.source.move("b")
	b2 := audit.Head{Resource: "b", Seq: 3, Hash: [32]byte{1}}
	for range 2 {
		done = run(t, s.path, s.signer, s.source)
		require.Equal(t, []anchor.Violation{{a, rewritten}, {b, b2}, gone}, done.Violations)
		require.Zero(t, done.Recorded)
	}
	heads, err := anchor.ReadHeads(bytes.NewReader(s.log(t)), done.Checkpoint)
	require.NoError(t, err)
	require.Len(t, heads, 8)
}

func TestMain(m *testing.M) { testenv.Main(m) }

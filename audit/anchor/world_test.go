package anchor_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
)

// chains are the histories of resources, as hashes from position 1 on: a source for tests of
// the log's file.
type chains map[string][][32]byte

// move appends an entry to the history of each resource.
func (c chains) move(resources ...string) {
	for _, name := range resources {
		c[name] = append(c[name], sha256.Sum256(fmt.Appendf(nil, "%s %d", name, len(c[name]))))
	}
}

func (c chains) Heads(context.Context) iter.Seq2[audit.Head, error] {
	return func(yield func(audit.Head, error) bool) {
		for _, name := range slices.Sorted(maps.Keys(c)) {
			if !yield(c.head(name), nil) {
				return
			}
		}
	}
}

func (c chains) head(name string) audit.Head {
	return audit.Head{Resource: name, Seq: int64(len(c[name])), Hash: c[name][len(c[name])-1]}
}

func (c chains) CompareHeads(_ context.Context, known []audit.Head) (rewritten, unproven []audit.Head, err error) {
	for _, k := range known {
		if hash := c[k.Resource][k.Seq-1]; hash != k.Hash {
			rewritten = append(rewritten, audit.Head{Resource: k.Resource, Seq: k.Seq, Hash: hash})
		}
	}
	return rewritten, nil, nil
}

const origin = "example.com/shop"

// newKey makes a key named origin.
func newKey(t *testing.T) (*anchor.Signer, note.Verifier) {
	t.Helper()
	return newKeyNamed(t, origin)
}

func newKeyNamed(t *testing.T, name string) (*anchor.Signer, note.Verifier) {
	t.Helper()
	private, public, err := anchor.NewKey(name)
	require.NoError(t, err)
	signer, err := anchor.ParseSigner(private + "\n")
	require.NoError(t, err)
	verifier, err := anchor.ParsePublicKey(public + "\n")
	require.NoError(t, err)
	return signer, verifier
}

// run anchors a source in the log at path, which it makes if it is missing.
func run(t *testing.T, path string, signer *anchor.Signer, source anchor.Source) *anchor.Run {
	t.Helper()
	log, err := anchor.Open(path, signer)
	if errors.Is(err, fs.ErrNotExist) {
		log, err = anchor.Create(path, signer)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	done, err := log.Anchor(t.Context(), source)
	require.NoError(t, err)
	return done
}

// sample is a log of seven records, and the checkpoints over its first three, four and all.
type sample struct {
	signer      *anchor.Signer
	key         note.Verifier
	source      chains
	path        string
	checkpoints []*anchor.Checkpoint
}

func newSample(t *testing.T) *sample {
	t.Helper()
	s := &sample{source: chains{}, path: filepath.Join(t.TempDir(), "heads")}
	s.signer, s.key = newKey(t)
	for _, moved := range [][]string{{"a", "b", "sku/1 <\u2028\x01>"}, {"b"}, {"a", "b", "c"}} {
		s.source.move(moved...)
		s.checkpoints = append(s.checkpoints, run(t, s.path, s.signer, s.source).Checkpoint)
	}
	return s
}

func (s *sample) last() *anchor.Checkpoint { return s.checkpoints[len(s.checkpoints)-1] }

func (s *sample) log(t *testing.T) []byte {
	t.Helper()
	return readFile(t, s.path)
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return text
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

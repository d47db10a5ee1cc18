package anchor_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fencekit/fencekit/audit/anchor"
)

// storedHashes are all hashes of a tree.
type storedHashes []tlog.Hash

func (s storedHashes) ReadHashes(indexes []int64) (hashes []tlog.Hash, err error) {
	for _, index := range indexes {
		hashes = append(hashes, s[index])
	}
	return hashes, nil
}

// treeOf builds the tree over the lines of a log.
func treeOf(t *testing.T, log []byte) storedHashes {
	t.Helper()
	var s storedHashes
	n := int64(0)
	for line := range bytes.Lines(log) {
		hashes, err := tlog.StoredHashes(n, bytes.TrimSuffix(line, []byte("\n")), s)
		require.NoError(t, err)
		s = append(s, hashes...)
		n++
	}
	return s
}

// openTree reads a tlog-checkpoint.
func openTree(t *testing.T, text string, key note.Verifier) tlog.Tree {
	t.Helper()
	opened, err := note.Open([]byte(text), note.VerifierList(key))
	require.NoError(t, err)
	lines := strings.Split(opened.Text, "\n")
	require.Equal(t, key.Name(), lines[0])
	size, err := strconv.ParseInt(lines[1], 10, 64)
	require.NoError(t, err)
	root, err := tlog.ParseHash(lines[2])
	require.NoError(t, err)
	return tlog.Tree{N: size, Hash: root}
}

// The root over the first n records is the one that a tree with all hashes has, for each n.
func TestTree_OfAnySize(t *testing.T) {
	t.Parallel()
	signer, key := newKey(t)
	path, source := t.TempDir()+"/heads", chains{}
	log, err := anchor.Create(path, signer)
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	var checkpoints []*anchor.Checkpoint
	for range 70 {
		source.move("a")
		done, err := log.Anchor(t.Context(), source)
		require.NoError(t, err)
		checkpoints = append(checkpoints, done.Checkpoint)
	}
	text := readFile(t, path)
	tree := treeOf(t, text)
	for _, c := range checkpoints {
		root, err := tlog.TreeHash(c.Size, tree)
		require.NoError(t, err)
		require.Equal(t, root, openTree(t, c.Note, key).Hash)
	}
}

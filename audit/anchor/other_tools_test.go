package anchor_test

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fencekit/fencekit/audit"
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

// Log, checkpoints and proofs are checked with the libraries of the Go checksum database alone:
// roots, the consistency of any two checkpoints, and the inclusion of a record.
func TestFormats_AreReadByOtherTools(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	tree := treeOf(t, s.log(t))
	for i, c := range s.checkpoints {
		later := openTree(t, c.Note, s.key)
		root, err := tlog.TreeHash(later.N, tree)
		require.NoError(t, err)
		require.Equal(t, root, later.Hash)
		for _, c := range s.checkpoints[:i+1] {
			earlier := openTree(t, c.Note, s.key)
			proof, err := tlog.ProveTree(later.N, earlier.N, tree)
			require.NoError(t, err)
			require.NoError(t, tlog.CheckTree(proof, later.N, later.Hash, earlier.N, earlier.Hash))
		}
	}

	text, err := anchor.Prove(bytes.NewReader(s.log(t)), s.last(), "a")
	require.NoError(t, err)
	head, checkpoint, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	require.Equal(t, "c2sp.org/tlog-proof@v1", lines[0])
	record, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "extra "))
	require.NoError(t, err)
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	require.NoError(t, err)
	var proof tlog.RecordProof
	for _, line := range lines[3:] {
		hash, err := tlog.ParseHash(line)
		require.NoError(t, err)
		proof = append(proof, hash)
	}
	signed := openTree(t, checkpoint, s.key)
	require.NoError(t, tlog.CheckRecord(proof, signed.N, signed.Hash, index, tlog.RecordHash(record)))
	require.Contains(t, string(record), `"resource":"a","seq":2,"hash":"`)
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
		proof, err := anchor.Prove(bytes.NewReader(text), c, "a")
		require.NoError(t, err)
		proven, err := anchor.ParseProof(proof, key)
		require.NoError(t, err)
		require.Equal(t, audit.Head{Resource: "a", Seq: c.Size, Hash: source["a"][c.Size-1]}, proven)
	}
}

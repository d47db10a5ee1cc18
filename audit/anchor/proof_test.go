package anchor_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/fence"
)

func TestProve_TheLastRecordThatTheCheckpointCovers(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	for i, want := range []int64{1, 2, 3} {
		text, err := anchor.Prove(bytes.NewReader(s.log(t)), s.checkpoints[i], "b")
		require.NoError(t, err)
		head, err := anchor.ParseProof(text, s.key)
		require.NoError(t, err)
		require.Equal(t, audit.Head{Resource: "b", Seq: want, Hash: s.source["b"][want-1]}, head)
		require.True(t, strings.HasSuffix(text, "\n\n"+s.checkpoints[i].Note))
		require.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte("sku/1")), "nothing of the others")
	}
	for _, resource := range []string{"c", "", "no such"} {
		_, err := anchor.Prove(bytes.NewReader(s.log(t)), s.checkpoints[0], resource)
		require.ErrorIs(t, err, fence.ErrInvalid, resource)
	}
	text := s.log(t)
	text[3] ^= 1
	_, err := anchor.Prove(bytes.NewReader(text), s.last(), "b")
	require.ErrorIs(t, err, anchor.ErrNotProven)
}

// A leaf that Fencekit never wrote is no head, also if it is signed.
func TestParseProof_RefusesLeavesThatAreNoHeads(t *testing.T) {
	t.Parallel()
	private, _, err := anchor.NewKey(origin)
	require.NoError(t, err)
	signer, err := note.NewSigner(private)
	require.NoError(t, err)
	parsed, err := anchor.ParseSigner(private)
	require.NoError(t, err)
	for _, leaf := range []string{
		"", "{}", "null", `{"at":"2026-01-02T03:04:05Z","continues":"x"}`,
		`{"at":"2026-01-02T03:04:05Z","resource":"a","seq":0,"hash":"` + strings.Repeat("00", 32) + `"}`,
		`{"at":"2026-01-02T03:04:05Z","resource":"a","seq":1,"hash":"` + strings.Repeat("00", 31) + `"}`,
		`{"at":"2026-01-02T03:04:05Z","resource":"a","seq":1,"hash":"` + strings.Repeat("0A", 32) + `"}`,
		`{"at":"2026-01-02T03:04:05Z","resource":"a","resource":"b","seq":1,"hash":"` + strings.Repeat("00", 32) + `"}`,
		`{"at":"2026-01-02T03:04:05Z","resource":"a","seq":1,"hash":"` + strings.Repeat("00", 32) + `","more":1}`,
	} {
		root := tlog.RecordHash([]byte(leaf))
		signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n1\n%s\n", origin, root)}, signer)
		require.NoError(t, err)
		_, err = anchor.ParseProof(fmt.Sprintf("c2sp.org/tlog-proof@v1\nextra %s\nindex 0\n\n%s", base64.StdEncoding.EncodeToString([]byte(leaf)), signed), parsed.Public())
		require.ErrorIs(t, err, anchor.ErrNotProven, leaf)
		require.ErrorContains(t, err, "has no head", leaf)
	}
}

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
		proof, err := anchor.Prove(bytes.NewReader(text), c, "a")
		require.NoError(t, err)
		proven, err := anchor.ParseProof(proof, key)
		require.NoError(t, err)
		require.Equal(t, audit.Head{Resource: "a", Seq: c.Size, Hash: source["a"][c.Size-1]}, proven)
	}
}

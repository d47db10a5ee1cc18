package anchor

import (
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
)

const proofVersion = "c2sp.org/tlog-proof@v1"

// Prove returns an inclusion proof, a tlog-proof of C2SP, for the last record of resource that c covers. It
// fails with ErrNotProven if the log doesn't match c, and with fence.ErrInvalid if c covers no record of
// resource. It takes 64 bytes of memory for each record.
func Prove(log io.Reader, c *Checkpoint, resource string) (string, error) {
	index := int64(-1)
	var extra string
	t := &tree{}
	var stored []tlog.Hash // by their indexes
	_, _, err := replay(log, []*Checkpoint{c}, func(n int64, r record, line []byte) {
		if n < c.Size && r.Resource == resource {
			index, extra = n, base64.StdEncoding.EncodeToString(line)
		}
		stored = append(stored, t.add(line)...)
	})
	if err != nil {
		return "", err
	}
	if index < 0 {
		return "", fmt.Errorf("%w: the checkpoint covers no record of resource %q", fence.ErrInvalid, resource)
	}
	hashes, err := tlog.ProveRecord(c.Size, index, tlog.HashReaderFunc(func(indexes []int64) (found []tlog.Hash, err error) {
		for _, i := range indexes {
			found = append(found, stored[i])
		}
		return found, nil
	}))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nextra %s\nindex %d\n", proofVersion, extra, index)
	for _, hash := range hashes {
		fmt.Fprintln(&b, hash)
	}
	return b.String() + "\n" + c.Note, nil
}

// ParseProof verifies a proof of Prove with the public key of its log, and returns the head that it proves. It
// fails with ErrNotProven if text is no valid proof.
func ParseProof(text string, key note.Verifier) (audit.Head, error) {
	proof, signed, _ := strings.Cut(text, "\n\n")
	c, err := ParseCheckpoint(signed, key)
	if err != nil {
		return audit.Head{}, err
	}
	lines := strings.Split(proof, "\n")
	if len(lines) < 3 || lines[0] != proofVersion {
		return audit.Head{}, fmt.Errorf("%w: want a proof that begins with %s, a line of extra data and the index", ErrNotProven, proofVersion)
	}
	line, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "extra "))
	if err != nil || "extra "+base64.StdEncoding.EncodeToString(line) != lines[1] {
		return audit.Head{}, fmt.Errorf("%w: the proof's record is not in base64", ErrNotProven)
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	if err != nil || fmt.Sprintf("index %d", index) != lines[2] {
		return audit.Head{}, fmt.Errorf("%w: the proof's index is no number", ErrNotProven)
	}
	var hashes tlog.RecordProof
	for _, text := range lines[3:] {
		hash, err := tlog.ParseHash(text)
		if err != nil || hash.String() != text {
			return audit.Head{}, fmt.Errorf("%w: the proof has a malformed hash", ErrNotProven)
		}
		hashes = append(hashes, hash)
	}
	if err := tlog.CheckRecord(hashes, c.Size, c.Root, index, tlog.RecordHash(line)); err != nil {
		return audit.Head{}, fmt.Errorf("%w: the proof's record is not one of those that the checkpoint covers: %w", ErrNotProven, err)
	}
	r, err := parseRecord(append(line, '\n'))
	if err != nil {
		return audit.Head{}, fmt.Errorf("%w: the proof's record has no head", ErrNotProven)
	}
	return r.head(), nil
}

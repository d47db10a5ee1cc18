package anchor

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
)

// record is a line of a log: the head of a resource.
type record struct {
	At       time.Time `json:"at"` // to the second, in UTC
	Resource string    `json:"resource"`
	Seq      int64     `json:"seq"`
	Hash     hash      `json:"hash"`
}

func headRecord(at time.Time, head audit.Head) record {
	return record{At: at, Resource: head.Resource, Seq: head.Seq, Hash: head.Hash}
}

func (r record) head() audit.Head { return audit.Head{Resource: r.Resource, Seq: r.Seq, Hash: r.Hash} }

type hash [32]byte

func (h hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

func (h *hash) UnmarshalText(text []byte) error {
	bytes, err := hex.DecodeString(string(text))
	if err != nil || len(bytes) != len(h) {
		return errNoRecord
	}
	*h = hash(bytes)
	return nil
}

func (r record) line() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		panic(err) // can't fail: At is the clock's time or was parsed by parseRecord
	}
	return b.Bytes()
}

// parseRecord accepts what line returns, and no other text.
func parseRecord(line []byte) (record, error) {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return record{}, err
	}
	if r.Resource == "" || r.Seq <= 0 || !bytes.Equal(r.line(), line) {
		return record{}, errNoRecord
	}
	return r, nil
}

var errNoRecord = errors.New("no record")

// tree is the Merkle tree over the added records. It keeps the last hash of each level: no other is needed to
// add a record, or for the root.
type tree struct {
	size int64
	last [63]tlog.Hash
}

// ReadHashes implements tlog.HashReader for the indexes that add and root ask for.
func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, _ := tlog.SplitStoredHashIndex(index)
		hashes[i] = t.last[level]
	}
	return hashes, nil
}

// add appends a record.
func (t *tree) add(line []byte) {
	hashes, err := tlog.StoredHashes(t.size, line, t)
	if err != nil {
		panic(err) // it comes from ReadHashes
	}
	copy(t.last[:], hashes)
	t.size++
}

func (t *tree) root() tlog.Hash {
	root, err := tlog.TreeHash(t.size, t)
	if err != nil {
		panic(err) // it comes from ReadHashes
	}
	return root
}

// replay reads a log and calls each for every record. It fails with ErrNotProven
// if the log doesn't match all checkpoints. After the last one it stops at the first malformed line, which an
// interrupted run may have left. It returns the tree over the records and their length in bytes.
func replay(log io.Reader, checkpoints []*Checkpoint, each func(n int64, r record)) (t *tree, length int64, err error) {
	checkpoints = slices.SortedFunc(slices.Values(checkpoints), func(a, b *Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	lines := bufio.NewScanner(log) // a record takes less than 4 kB of the 64 kB that it reads
	lines.Split(wholeLines)
	t = &tree{}
	for {
		for ; len(checkpoints) > 0 && checkpoints[0].Size == t.size; checkpoints = checkpoints[1:] {
			if err := checkpoints[0].matches(t); err != nil {
				return nil, 0, err
			}
		}
		more := lines.Scan()
		if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
			return nil, 0, fmt.Errorf("anchor: reading the log: %w", err)
		}
		line := lines.Bytes()
		r, bad := parseRecord(line)
		switch {
		case bad == nil:
		case len(checkpoints) == 0:
			return t, length, nil
		case !more && lines.Err() == nil:
			return nil, 0, fmt.Errorf("%w: the log ends after %d records, and a checkpoint covers %d", ErrNotProven, t.size, checkpoints[0].Size)
		default:
			return nil, 0, fmt.Errorf("%w: line %d of the log is no record", ErrNotProven, t.size+1)
		}
		length += int64(len(line))
		each(t.size, r)
		t.add(line[:len(line)-1])
	}
}

// wholeLines is bufio.ScanLines, but keeps newlines: a last line without one is incomplete.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// ReadHeads returns all heads that the largest of the checkpoints covers, in the order of the log. It fails
// with ErrNotProven if the log doesn't match each checkpoint, and with fence.ErrInvalid without one.
func ReadHeads(log io.Reader, checkpoints ...*Checkpoint) ([]audit.Head, error) {
	if len(checkpoints) == 0 {
		return nil, fmt.Errorf("%w: a log proves nothing without a signed checkpoint", fence.ErrInvalid)
	}
	size := slices.MaxFunc(checkpoints, func(a, b *Checkpoint) int { return cmp.Compare(a.Size, b.Size) }).Size
	var heads []audit.Head
	names := map[string]string{} // one string for all heads of a resource
	_, _, err := replay(log, checkpoints, func(n int64, r record) {
		if n >= size {
			return
		}
		head := r.head()
		if name, ok := names[head.Resource]; ok {
			head.Resource = name
		}
		names[head.Resource] = head.Resource
		heads = append(heads, head)
	})
	if err != nil {
		return nil, err
	}
	return heads, nil
}

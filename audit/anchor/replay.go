package anchor

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

// maxLine bounds a line of a log, in bytes. The line of a head has less than 4 kB. That of a
// checkpoint has up to 700 kB: note accepts at most 100 signatures, which are 7 kB at most.
const maxLine = 1 << 20

// replay reads a log and calls each for every record with its index; line is valid during the
// call. It fails with ErrNotProven if the log doesn't match all checkpoints. After the last
// checkpoint it stops at the first malformed line, which an interrupted run may have left. It
// returns the tree over all records and their length in bytes.
func replay(log io.Reader, checkpoints []*Checkpoint, each func(n int64, r record, line []byte)) (t *tree, length int64, err error) {
	checkpoints = slices.SortedFunc(slices.Values(checkpoints), func(a, b *Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	lines := bufio.NewScanner(log)
	lines.Buffer(make([]byte, 64<<10), maxLine)
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
		line = line[:len(line)-1]
		each(t.size, r, line)
		t.add(line)
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

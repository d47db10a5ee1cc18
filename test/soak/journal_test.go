package soak_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// journal keeps the outcomes that callers got, in a file: in memory it would look like a
// leak.
type journal struct {
	mu   sync.Mutex
	file *os.File
	out  *bufio.Writer

	counts map[outcome]int
}

// effect is what an operation was to do, and the outcome that its caller got.
type effect struct {
	op      string
	rows    int // that it writes if it takes effect
	outcome outcome
	value   int64 // that it returned; 0 if it returns none
}

const (
	applied    outcome = "applied"     // unknown at first, then Resolve said so
	notApplied outcome = "not-applied" // likewise
)

func newJournal(t *testing.T) *journal {
	file, err := os.Create(filepath.Join(t.TempDir(), "journal"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	return &journal{file: file, out: bufio.NewWriter(file), counts: map[outcome]int{}}
}

func (j *journal) write(e effect) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts[e.outcome]++
	_, err := fmt.Fprintln(j.out, e.op, e.rows, e.outcome, e.value)
	return err
}

func (j *journal) count(of outcome) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts[of]
}

// all reads the journal, when all workers have ended.
func (j *journal) all(t *testing.T) (effects []effect) {
	require.NoError(t, j.out.Flush())
	_, err := j.file.Seek(0, io.SeekStart)
	require.NoError(t, err)
	for in := bufio.NewReader(j.file); ; {
		var e effect
		_, err := fmt.Fscanln(in, &e.op, &e.rows, &e.outcome, &e.value)
		if err == io.EOF {
			return effects
		}
		require.NoError(t, err)
		effects = append(effects, e)
	}
}

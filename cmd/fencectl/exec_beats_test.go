//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/clock"
)

// beatRole, as the first argument, makes this binary a process that says all the time that it is
// alive.
const beatRole = "be-alive"

// beat writes its process id and the time into a pipe every two milliseconds. With "parent" it
// starts another one in its process group, which ignores SIGTERM.
func beat(pipe string, parent bool) {
	if parent {
		child := exec.Command(os.Args[0], beatRole, pipe)
		if err := child.Start(); err != nil {
			panic(err)
		}
	} else {
		signal.Ignore(syscall.SIGTERM)
	}
	to, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	for range time.Tick(2 * time.Millisecond) {
		if _, err := fmt.Fprintf(to, "%d %d\n", os.Getpid(), clock.Now()); err != nil {
			return // the test has ended
		}
	}
}

// beats are what the processes of a command have written.
type beats struct {
	pipe string
	both chan struct{} // closed when two of them live
	over chan struct{} // closed when none of them lives any more

	mu   sync.Mutex
	last map[int]int64 // by process
}

func newBeats(t *testing.T) *beats {
	t.Helper()
	b := &beats{pipe: filepath.Join(t.TempDir(), "beats"), both: make(chan struct{}), over: make(chan struct{}), last: map[int]int64{}}
	require.NoError(t, syscall.Mkfifo(b.pipe, 0o600))
	go b.read()
	t.Cleanup(b.endWithoutWriter)
	return b
}

// endWithoutWriter ends the reading if no process of the command has ever begun.
func (b *beats) endWithoutWriter() {
	if to, err := os.OpenFile(b.pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		_ = to.Close()
	}
}

// command is what to run to make the beats.
func (b *beats) command() []string { return []string{os.Args[0], beatRole, b.pipe, "parent"} }

func (b *beats) read() {
	defer close(b.over)
	from, err := os.Open(b.pipe) // returns when there is a writer
	if err != nil {
		return
	}
	defer from.Close()
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var pid int
		var at int64
		if _, err := fmt.Sscan(lines.Text(), &pid, &at); err == nil {
			b.note(pid, at)
		}
	}
}

func (b *beats) note(pid int, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.last[pid]; !known && len(b.last) == 1 {
		close(b.both)
	}
	b.last[pid] = at
}

// awaitOver returns when the last of the processes was known to live.
func (b *beats) awaitOver(t *testing.T) (at int64) {
	t.Helper()
	select {
	case <-b.over:
	case <-time.After(time.Minute):
		require.FailNow(t, "the command lives on")
	}
	for _, last := range b.last {
		at = max(at, last)
	}
	return at
}

package soak_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/testenv/child"
)

// trace is what the workers have reported.
type trace struct {
	mu       sync.Mutex
	ops      map[string]*opTrace
	counts   map[string]int    // of events by kind and reason
	failures map[string]string // an example of each kind
	ended    int
	retries  int
	longest  int64 // ms
	changed  chan struct{}
}

// opTrace is what a worker reported of one operation. An operation without an end was killed
// with its worker.
type opTrace struct {
	end    *event
	answer *event
}

func newTrace() *trace {
	return &trace{ops: map[string]*opTrace{}, counts: map[string]int{}, failures: map[string]string{}, changed: make(chan struct{}, 1)}
}

func (t *trace) take(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case opBegins:
		t.ops[e.Op] = &opTrace{}
	case opEnds:
		t.ops[e.Op].end = &e
		t.ended++
		t.longest = max(t.longest, e.Took)
		t.counts[string(e.Outcome)]++
		if e.Outcome != committed {
			kind := string(e.Outcome) + " with " + e.Class
			t.counts[kind]++
			t.failures[kind] = e.Err
		}
	case opAnswer:
		t.ops[e.Op].answer = &e
		t.counts[fmt.Sprintf("answer applied=%v", e.Applied)]++
	case opRuns:
		t.retries += e.Runs - 1
	case resolved:
		t.counts[fmt.Sprintf("resolved applied=%v", e.Applied)]++
	default:
		t.counts[string(e.Kind)]++
		t.counts[string(e.Kind)+": "+e.Reason]++
	}
	t.change()
}

func (t *trace) change() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

func (t *trace) done() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

func (t *trace) count(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[what]
}

// summary lists the counts in order of their names.
func (t *trace) summary() (lines []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(t.counts)) {
		lines = append(lines, fmt.Sprintf("%6d %s", t.counts[name], name))
		if example := t.failures[name]; example != "" {
			lines = append(lines, "       such as: "+example)
		}
	}
	return lines
}

// member is one worker, across its successive processes.
type member struct {
	trace *trace
	spec  workerSpec // of the present process

	child        *child.Process
	begun, ended atomic.Int64  // operations of the present process
	stopping     chan string   // gets the operation in which the present process stops
	silent       chan struct{} // closed when the present process has closed its output
}

// start starts a process for the operations that have not ended, each with a new id: those
// that were killed with a process keep theirs.
func (m *member) start() error {
	m.spec.First += int(m.begun.Swap(0))
	m.spec.Count -= int(m.ended.Swap(0))
	text, err := json.Marshal(m.spec)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerVar+"="+string(text))
	cmd.Stdout, cmd.Stderr = in, os.Stderr
	m.child, err = child.Start(cmd)
	_ = in.Close() // the child has its own
	if err != nil {
		_ = out.Close()
		return err
	}
	m.silent, m.stopping = make(chan struct{}), make(chan string, 1)
	go m.listen(out)
	return nil
}

// listen reads what the present process reports, until it has ended.
func (m *member) listen(out *os.File) {
	defer m.trace.change()
	defer close(m.silent)
	defer out.Close()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			panic(fmt.Sprintf("worker %d wrote %q", m.spec.Worker, lines.Text()))
		}
		switch e.Kind {
		case opBegins:
			m.begun.Add(1)
		case opEnds:
			m.ended.Add(1)
		case opStops:
			m.stopping <- e.Op
			continue
		}
		m.trace.take(e)
	}
}

// busy reports whether the present process still works.
func (m *member) busy() bool {
	select {
	case <-m.silent:
		return false
	default:
		return true
	}
}

// awaitStopped waits until the present process, which is about to stop itself, is stopped.
func (m *member) awaitStopped(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		stopped, err := pause.Stopped(m.child.Pid())
		if stopped || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replace kills the present process and starts another one for the remaining operations.
func (m *member) replace() error {
	if err := m.child.Kill(); err != nil {
		return err
	}
	<-m.silent
	return m.start()
}

// await waits for the end of the present process.
func (m *member) await(t *testing.T) {
	<-m.silent
	if state := m.child.Wait(); !state.Success() {
		t.Errorf("worker %d: %v", m.spec.Worker, state)
	}
}

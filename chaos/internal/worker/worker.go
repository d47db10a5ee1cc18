// Package worker is a worker process of a run: it does operations of a workload, under
// Fencekit or under a control, and records them. The run sends it commands as lines of JSON
// (Command).
package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/pause"
)

// SpecVariable is the environment variable with the Spec of a worker. A child of this binary
// that has it is a worker.
const SpecVariable = "FENCEKIT_CHAOS_WORKER"

// exitWorker is the exit code of a worker that failed.
const exitWorker = 3

// CloseBound bounds how long a worker takes to release what it holds.
const CloseBound = 10 * time.Second

// worker is a worker process. It reads commands and writes events until a command says to
// close, or its run has ended.
type worker struct {
	spec     Spec
	workload workload.Workload
	envs     []*workload.Env // which operations use in turn
	points   *points
	history  *history.Recorder
	operated atomic.Int64

	ctx   context.Context
	tasks sync.WaitGroup
	quiet context.CancelFunc // ends the load; nil if there is none
	load  sync.WaitGroup
}

func (w *worker) work(commands io.Reader) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.ctx = ctx
	envs, shut, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer shut()
	w.envs = envs
	w.note(NoteReady)
	err = w.follow(commands)
	cancel() // ends running operations: the run has waited for those whose outcome it needs
	w.tasks.Wait()
	w.load.Wait()
	closing, done := context.WithTimeout(context.Background(), CloseBound)
	defer done()
	if closeErr := w.close(closing); closeErr != nil {
		w.record(history.Event{Kind: history.Note, Name: "closing failed", Error: closeErr.Error()})
	}
	return errors.Join(err, w.history.Err())
}

// close releases what is held.
func (w *worker) close(ctx context.Context) error {
	errs := make([]error, len(w.envs))
	var closing sync.WaitGroup
	for i, env := range w.envs {
		closing.Go(func() { errs[i] = env.Protection.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// follow follows commands until one says to close, or there are no more.
func (w *worker) follow(commands io.Reader) error {
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		var c Command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("command %q: %w", lines.Text(), err)
		}
		switch {
		case c.Close:
			return nil
		case c.Operate != nil:
			w.tasks.Go(func() { w.operate(w.ctx, *c.Operate, c.Within) })
		case c.Again != nil:
			w.tasks.Go(func() { w.callAgain(w.ctx, *c.Again, c.Within) })
		case c.Load:
			w.startLoad()
		case c.Quiet:
			w.tasks.Go(w.endLoad)
		case c.Disarm:
			if w.points.disarm() {
				w.note(NoteDisarmed)
			}
		case c.Arm != "":
			w.points.arm(c.Arm, c.Skip, c.Then)
		case c.Stall:
			w.tasks.Go(w.stall)
		}
	}
	return lines.Err()
}

func (w *worker) record(e history.Event) {
	e.Process = w.spec.Worker
	w.history.Record(e)
	if w.history.Err() != nil {
		os.Exit(exitWorker) // the run has ended
	}
}

func (w *worker) note(name string) { w.record(history.Event{Kind: history.Note, Name: name}) }

// stall stops the world of this process until its run resumes it.
func (w *worker) stall() {
	if err := pause.StopTheWorld(stallFile()); err != nil {
		w.record(history.Event{Kind: history.Note, Name: "the world could not be stopped", Error: err.Error()})
		return
	}
	w.note(NoteStalled)
}

// stallFile is the file of the run's pause.WorldStopper, which this process inherits.
var stallFile = sync.OnceValue(func() *os.File { return os.NewFile(3, "stall") })

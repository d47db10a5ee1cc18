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
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/guard"
)

// SpecVariable is the environment variable with the Spec of a worker.
const SpecVariable = "FENCEKIT_CHAOS_WORKER"

// Spec is the configuration of a worker process.
type Spec struct {
	Worker     string
	Number     int // of the worker, from 0
	Workload   string
	Group      string // check.Fenced, or the name of a control
	Servers           // through this worker's links
	Prefix     string // of the lock keys
	Seed       uint64
	Unhindered bool          // nothing but the fence stops a late transaction
	Beside     bool          // Fencekit's locks are in Postgres
	Within     time.Duration // for each operation under load
}

// Command is a command to a running worker. The first member that is set says what to do.
type Command struct {
	Operate *Op           `json:",omitempty"` // do this
	Again   bool          `json:",omitempty"` // for Operate: it is called once more; recorded as NoteCalledAgain
	Within  time.Duration `json:",omitempty"` // for Operate
	Load    bool          `json:",omitempty"` // start the load
	Quiet   bool          `json:",omitempty"` // end the load; recorded as NoteQuiet
	Arm     string        `json:",omitempty"` // a point
	Skip    int           `json:",omitempty"` // for Arm: how many awaits to skip
	Then    string        `json:",omitempty"` // for Arm: history.ThenPause or ThenKill
	Disarm  bool          `json:",omitempty"` // recorded as NoteDisarmed, unless the point was reached
	Close   bool          `json:",omitempty"` // end
}

// What a worker notes for its run.
const (
	NoteReady       = "ready"
	NoteQuiet       = "quiet"
	NoteDisarmed    = "disarmed"
	NoteCalledAgain = "called again" // with the operation, and its error
)

// CloseBound bounds how long a worker takes to release what it holds.
const CloseBound = 10 * time.Second

const exitWorker = 3

// Reexec: see chaos.Reexec.
func Reexec(workloads ...Workload) {
	spec := os.Getenv(SpecVariable)
	if spec == "" {
		return
	}
	w := &worker{history: history.NewTrace(os.Stdout)}
	os.Stdout = os.Stderr // what a workload prints doesn't belong in the history
	commands := os.Stdin
	os.Stdin, _ = os.Open(os.DevNull) // a workload must not read commands
	err := json.Unmarshal([]byte(spec), &w.spec)
	for _, known := range workloads {
		if known.Name() == w.spec.Workload {
			w.workload = known
		}
	}
	if err == nil {
		err = w.work(commands)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: worker:", err)
		os.Exit(exitWorker)
	}
	os.Exit(0)
}

type worker struct {
	spec     Spec
	workload Workload
	env      *Env
	points   *points
	history  *history.Trace
	close    func(context.Context) error // releases what Fencekit holds; nil for a control

	ctx   context.Context
	tasks sync.WaitGroup
	quiet context.CancelFunc // ends the load; nil if there is none
	load  sync.WaitGroup
}

func (w *worker) work(commands io.Reader) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.ctx = ctx
	if err := w.open(ctx); err != nil {
		return err
	}
	w.note(NoteReady)
	err := w.follow(commands)
	cancel() // ends running operations: the run has waited for those whose outcome it needs
	w.tasks.Wait()
	w.load.Wait()
	closing, done := context.WithTimeout(context.Background(), CloseBound)
	defer done()
	if w.close != nil {
		w.record(history.Event{Kind: history.Note, Name: "closed", Error: history.Text(w.close(closing))})
	}
	return errors.Join(err, w.history.Err())
}

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
		case c.Operate != nil && c.Again:
			w.tasks.Go(func() { w.callAgain(*c.Operate, c.Within) })
		case c.Operate != nil:
			w.tasks.Go(func() { w.operate(*c.Operate, c.Within) })
		case c.Load:
			w.startLoad()
		case c.Quiet:
			w.tasks.Go(w.endLoad)
		case c.Disarm:
			if w.points.arm("", 0, "") {
				w.note(NoteDisarmed)
			}
		case c.Arm != "":
			w.points.arm(c.Arm, c.Skip, c.Then)
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

// operate records how the operation ended. If Operate panics this process ends, and its run reports the stack.
func (w *worker) operate(op Op, within time.Duration) {
	ctx, cancel := context.WithTimeout(w.ctx, within)
	defer cancel()
	begins := history.Event{Kind: history.Invoke, Op: op.ID, Action: "operate", Resources: []string{op.Resource}}
	if d, ok := w.workload.(Described); ok {
		begins.Action, begins.Resources = d.Describe(op)
	}
	w.record(begins)
	err := w.workload.Operate(ctx, w.env, op)
	if w.env.Guard == nil && errors.Is(err, guard.ErrInvalid) {
		panic(fmt.Sprintf("Operate used Env.Guard, which a control doesn't have: %v", err))
	}
	ends := history.Event{Kind: history.OK, Op: op.ID}
	switch {
	case err == nil:
	case errors.Is(err, guard.ErrUnknownOutcome), errors.Is(err, errUnknown):
		ends.Kind, ends.Error = history.Unknown, err.Error()
	default:
		ends.Kind, ends.Error, ends.SoldOut = history.Fail, err.Error(), errors.Is(err, errSoldOut)
	}
	w.record(ends)
	w.resolve(ctx, op.ID, err)
}

// callAgain records no operation: the second call must have no effect.
func (w *worker) callAgain(op Op, within time.Duration) {
	ctx, cancel := context.WithTimeout(w.ctx, within)
	defer cancel()
	w.record(history.Event{Kind: history.Note, Name: NoteCalledAgain, Op: op.ID, Error: history.Text(w.workload.Operate(ctx, w.env, op))})
}

func (w *worker) resolve(ctx context.Context, op string, err error) {
	var doubt *guard.UnknownOutcomeError
	if !errors.As(err, &doubt) {
		return
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if applied, err := doubt.Resolve(ctx); err == nil {
			w.record(history.Event{Kind: history.Answer, Op: op, Applied: applied})
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

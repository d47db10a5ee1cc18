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
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/testenv"
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
	env      *workload.Env
	points   *points
	history  *history.Recorder

	ctx   context.Context
	tasks sync.WaitGroup
	quiet context.CancelFunc // ends the load; nil if there is none
	load  sync.WaitGroup
}

func (w *worker) work(commands io.Reader) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.ctx = ctx
	shut, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer shut()
	w.note(NoteReady)
	err = w.follow(commands)
	cancel() // ends running operations: the run has waited for those whose outcome it needs
	w.tasks.Wait()
	w.load.Wait()
	closing, done := context.WithTimeout(context.Background(), CloseBound)
	defer done()
	if closeErr := w.env.Protection.Close(closing); closeErr != nil {
		w.record(history.Event{Kind: history.Note, Name: "closing failed", Error: closeErr.Error()})
	}
	return errors.Join(err, w.history.Err())
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

// Reexec must be the first call of every main() whose binary runs workloads. In a child
// that was started as a worker, or as a server, it runs that and never returns. A worker can
// run these workloads, and the built-in one.
func Reexec(workloads ...workload.Workload) {
	testenv.Reexec()
	if text := os.Getenv(SpecVariable); text != "" {
		os.Exit(runWorker(text, append([]workload.Workload{workload.Stock{}}, workloads...)))
	}
}

// runWorker is a worker's whole main. It returns the exit code.
func runWorker(text string, workloads []workload.Workload) int {
	w := &worker{history: history.NewRecorder(os.Stdout)}
	os.Stdout = os.Stderr // what a workload prints doesn't belong in the history
	commands := os.Stdin
	os.Stdin, _ = os.Open(os.DevNull) // a workload must not read commands
	err := json.Unmarshal([]byte(text), &w.spec)
	if err == nil {
		w.workload, err = find(workloads, w.spec.Workload)
	}
	if err == nil {
		err = w.work(commands)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: worker:", err)
		return exitWorker
	}
	return 0
}

func find(workloads []workload.Workload, name string) (workload.Workload, error) {
	for _, w := range workloads {
		if w.Name() == name {
			return w, nil
		}
	}
	return nil, fmt.Errorf("%w: this binary has no workload %q: give it to chaos.Main or chaos.Reexec", workload.ErrConfig, name)
}

// Spec is the configuration of a worker process, set when it starts.
type Spec struct {
	Worker     string        `json:"worker"`
	Number     int           `json:"number"` // of the worker, from 0
	Workload   string        `json:"workload"`
	Group      string        `json:"group"` // result.Fenced, or the name of a control
	Etcd       []string      `json:"etcd"`  // endpoints, through this worker's links
	Postgres   string        `json:"postgres"`
	Service    []string      `json:"service"` // addresses of what the control needs
	Prefix     string        `json:"prefix"`  // of the lock keys
	TTL        time.Duration `json:"ttl"`
	Seed       uint64        `json:"seed"`
	Unhindered bool          `json:"unhindered"` // see scenario.Scenario
	Within     time.Duration `json:"within"`     // for each operation under load
}

// Command is a command to a running worker, a line of JSON each. The first member that is
// set says what to do.
type Command struct {
	Operate *workload.Op  `json:"operate,omitempty"` // do this
	Again   *workload.Op  `json:"again,omitempty"`   // call this again; recorded as NoteCalledAgain
	Within  time.Duration `json:"within,omitempty"`  // for Operate and Again
	Load    bool          `json:"load,omitempty"`    // start the load
	Quiet   bool          `json:"quiet,omitempty"`   // end the load; recorded as NoteQuiet
	Arm     string        `json:"arm,omitempty"`     // a point
	Skip    int           `json:"skip,omitempty"`    // for Arm: how many awaits to skip
	Then    fault.Then    `json:"then,omitempty"`    // for Arm
	Disarm  bool          `json:"disarm,omitempty"`  // recorded as NoteDisarmed, unless the point was reached
	Stall   bool          `json:"stall,omitempty"`   // stop the world, until the pipe is drained
	Close   bool          `json:"close,omitempty"`   // end
}

// What a worker notes for its run.
const (
	NoteReady       = "ready"
	NoteQuiet       = "quiet"
	NoteDisarmed    = "disarmed"
	NoteStalled     = "the world was stopped"
	NoteCalledAgain = "called again" // with the operation, and its error
)

// operate does one operation and records how it ended.
func (w *worker) operate(ctx context.Context, op workload.Op, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	describe := workload.DescribeByResource
	if d, ok := w.workload.(workload.Described); ok {
		describe = d.Describe
	}
	begins := history.Event{Kind: history.Invoke, Op: op.ID}
	begins.Action, begins.Resources = describe(op)
	w.record(begins)
	err := w.call(ctx, w.env, op)
	ends := history.Event{Kind: history.OK, Op: op.ID}
	if err != nil {
		ends.Kind, ends.Error, ends.Class = history.Fail, fmt.Sprintf("%.1000s", err), workload.ClassOf(err)
	}
	if errors.Is(err, guard.ErrUnknownOutcome) || errors.Is(err, control.ErrUnknown) || ends.Class == ClassNoOutcome {
		ends.Kind = history.Unknown
	}
	w.record(ends)
	w.ask(ctx, op.ID, err)
}

// callAgain calls Operate again for an operation that has ended. The history has no
// operation for the second call: it must have no effect.
func (w *worker) callAgain(ctx context.Context, op workload.Op, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := w.call(ctx, w.env, op)
	w.record(history.Event{Kind: history.Note, Name: NoteCalledAgain, Op: op.ID, Error: errorText(err)})
}

// ask resolves an unknown outcome, and retries until there is an answer.
func (w *worker) ask(ctx context.Context, op string, err error) {
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

// errorText is what an error says; empty if there is none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// noOutcome is the error of an Operate that did not return: what it did is unknown.
type noOutcome struct{ how string }

func (e *noOutcome) Error() string { return "Operate " + e.how }

// Class implements Classer.
func (*noOutcome) Class() string { return ClassNoOutcome }

// ClassNoOutcome is the class of an operation that did not return.
const ClassNoOutcome = "no outcome"

// call calls Operate. If Operate panics the process goes on, as a server does when a
// handler panics; the stack goes to standard error, which is the worker's log.
func (w *worker) call(ctx context.Context, env *workload.Env, op workload.Op) error {
	ended := make(chan error, 1)
	go func() {
		var err error = &noOutcome{"ended its goroutine (runtime.Goexit)"}
		defer func() {
			if v := recover(); v != nil {
				err = &noOutcome{fmt.Sprintf("panicked: %v, %s", v, panickedAt())}
				fmt.Fprintf(os.Stderr, "chaos: operation %s: %v\n%s\n", op.ID, err, debug.Stack())
			}
			ended <- err
		}()
		err = w.workload.Operate(ctx, env, op)
		if env.Guard == nil && errors.Is(err, guard.ErrInvalid) {
			err = &noOutcome{fmt.Sprintf("used Env.Guard, which a control doesn't have: %v", err)}
		}
	}()
	return <-ended
}

// panickedAt says where the present panic began. The deferred function that recovers calls
// it.
func panickedAt() string {
	callers := make([]uintptr, 100)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	var at runtime.Frame // the caller of the first panic; later panics followed from it
	more, panicking := true, false
	for more {
		var f runtime.Frame
		f, more = frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicking = true
		case panicking && !strings.HasPrefix(f.Function, "runtime."):
			at, panicking = f, false
		}
	}
	return fmt.Sprintf("in %s (%s:%d)", at.Function, filepath.Base(at.File), at.Line)
}

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/guard"
)

// ErrWorkload: a run could not take place because of the Workload: its Prepare
// failed, or its Operate can't run under a control.
var ErrWorkload = errors.New("chaos: the workload can't be run")

// noOutcome is how Operate ended where nobody knows what it did.
type noOutcome struct{ how string }

func (e *noOutcome) Error() string { return "Operate " + e.how }

// Class implements Classer.
func (*noOutcome) Class() string { return classNoOutcome }

const classNoOutcome = "no outcome"

// call calls Operate. If it panics the process goes on, as that of a server does
// whose handler panics; the stack goes to standard error, which is the worker's log.
func (w *worker) call(ctx context.Context, env *Env, op Op) error {
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

// panickedAt says where the present panic began, in a function that is deferred
// where it is recovered.
func panickedAt() string {
	callers := make([]uintptr, 100)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	var at runtime.Frame // the first one below the first panic: others came of that
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

// unfit says that operations had no outcome, and why the first one hadn't; nil if all
// had.
func (s *Stage) unfit() error {
	var first *history.Event
	number := 0
	for _, e := range s.story.all() {
		if e.Kind == history.Unknown && e.Class == classNoOutcome {
			if number++; first == nil {
				first = &e
			}
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("chaos: %d operations of workload %q had no outcome; the first was %s: %s; for its stack see %s.log",
		number, s.workload.Name(), first.Op, first.Error, first.Process)
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/guard"
)

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

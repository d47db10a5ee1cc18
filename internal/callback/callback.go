// Package callback calls functions that users configure, such as observers and
// loggers, so that nothing they do reaches the code that calls them.
//
// Each runs on a goroutine of its own, for which the caller waits. A recover would
// not do: a callback that ends its goroutine, as require.FailNow does in a test,
// would take the caller's along, with the locks that it has and the work that it
// is about to do.
package callback

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
)

// Failure says how a callback that did not return has ended.
type Failure struct {
	Panic any // what it panicked with, or Goexit
	Stack string
}

// Goexit is the Panic of a callback that called runtime.Goexit.
const Goexit = "runtime.Goexit"

func (f *Failure) Error() string { return fmt.Sprintf("panicked: %v", f.Panic) }

// Run calls f and waits for its end. It returns nil if f returned.
func Run(f func()) *Failure {
	var failure *Failure
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		returned := false
		defer func() {
			if returned {
				return
			}
			failure = &Failure{Panic: recover(), Stack: string(debug.Stack())}
			if failure.Panic == nil {
				failure.Panic = Goexit
			}
		}()
		f()
		returned = true
	}()
	<-ended
	return failure
}

// Logger returns a Logger that passes records on to l and returns even if l's Handler
// panics or ends its goroutine, which it reports on standard error. If l is nil, nothing is
// logged.
func Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(handler{l.Handler()})
}

type handler struct{ slog.Handler }

func (h handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	report(Run(func() { enabled = h.Handler.Enabled(ctx, level) }))
	return enabled
}

func (h handler) Handle(ctx context.Context, record slog.Record) (err error) {
	report(Run(func() { err = h.Handler.Handle(ctx, record) }))
	return err
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := h
	report(Run(func() { with.Handler = h.Handler.WithAttrs(attrs) }))
	return with
}

func (h handler) WithGroup(name string) slog.Handler {
	with := h
	report(Run(func() { with.Handler = h.Handler.WithGroup(name) }))
	return with
}

func report(failure *Failure) {
	if failure != nil {
		fmt.Fprintf(os.Stderr, "fencekit: the Logger panicked: %v\n%s\n", failure.Panic, failure.Stack)
	}
}

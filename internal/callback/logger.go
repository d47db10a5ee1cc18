package callback

import (
	"context"
	"fmt"
	"log/slog"
	"os"
)

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

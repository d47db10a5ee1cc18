package guard

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage"
)

// reporter reports events to the Observer and the Logger of a Config, if there are any.
type reporter struct {
	observer Observer
	logger   *slog.Logger
	logs     bool // the Config has a Logger
}

func newReporter(o *Observer, l *slog.Logger) *reporter {
	r := &reporter{logger: callback.Logger(l), logs: l != nil}
	if o != nil {
		r.observer = *o
	}
	return r
}

func (r *reporter) log(level slog.Level, msg string, g fence.Grant, args ...any) {
	if !r.logs {
		return
	}
	args = append([]any{"resource", g.Resource, "epoch", g.Epoch, "token", int64(g.Token), "holder", g.Holder}, args...)
	r.logger.Log(context.Background(), level, msg, args...)
}

// observe calls a function of the Observer. A panic or a runtime.Goexit there must not keep
// the caller from passing on its turn and releasing its lease.
func (r *reporter) observe(call func()) {
	if failure := callback.Run(call); failure != nil {
		r.logger.Error("guard: the Observer panicked", "panic", failure.Panic, "stack", failure.Stack)
	}
}

func (r *reporter) queued(resource string, delta int) {
	if f := r.observer.Queued; f != nil {
		r.observe(func() { f(resource, delta) })
	}
}

func (r *reporter) acquired(g fence.Grant, wait time.Duration) {
	r.log(slog.LevelDebug, "guard: acquired", g, "wait", wait)
	if f := r.observer.Acquired; f != nil {
		r.observe(func() { f(g, wait) })
	}
}

func (r *reporter) leaseLost(err *fence.LeaseLostError) {
	r.log(slog.LevelWarn, "guard: lease lost", err.Grant, "reason", string(err.Reason))
	if f := r.observer.LeaseLost; f != nil {
		r.observe(func() { f(err) })
	}
}

func (r *reporter) overran(g fence.Grant, limit time.Duration) {
	r.log(slog.LevelWarn, "guard: a function runs for too long; its resource is released", g, "max_run", limit)
}

func (r *reporter) released(g fence.Grant, err error) {
	switch {
	case err == nil:
		r.log(slog.LevelDebug, "guard: released", g)
	case errors.Is(err, context.DeadlineExceeded):
		r.log(slog.LevelInfo, "guard: release not confirmed in time; it goes on in the background", g, "error", err)
	default:
		r.log(slog.LevelWarn, "guard: release failed; the lease runs out by itself", g, "error", err)
	}
	if f := r.observer.Released; f != nil {
		r.observe(func() { f(g, err) })
	}
}

func (r *reporter) claimed(g fence.Grant, took time.Duration) {
	r.log(slog.LevelDebug, "guard: claimed", g, "took", took)
	if f := r.observer.Claimed; f != nil {
		r.observe(func() { f(g, took) })
	}
}

func (r *reporter) rejected(e *RejectedError) {
	r.log(slog.LevelWarn, "guard: rejected", e.Grant, "reason", string(e.Reason), "stage", string(e.Stage),
		"current_epoch", e.Current.Epoch, "current_token", int64(e.Current.Token), "current_holder", e.Current.Holder)
	if f := r.observer.Rejected; f != nil {
		r.observe(func() { f(e) })
	}
}

// unknown reports an outcome that has just become unknown.
func (r *reporter) unknown(e *UnknownOutcomeError, took time.Duration) {
	for _, g := range e.Grants {
		r.log(slog.LevelError, "guard: outcome of COMMIT is unknown", g,
			"op_id", e.Record.ID, "op_name", e.Record.Name, "error", e.Err, "ask_error", e.AskErr, "took", took)
	}
	r.resolved(e.Grants, e.Record, false, e.AskErr, took)
}

func (r *reporter) resolved(grants []fence.Grant, op storage.OpRecord, applied bool, err error, took time.Duration) {
	for _, g := range grants {
		if err == nil {
			r.log(slog.LevelInfo, "guard: resolved a COMMIT in doubt", g, "op_id", op.ID, "op_name", op.Name, "applied", applied, "took", took)
		}
	}
	if f := r.observer.Resolved; f != nil {
		r.observe(func() { f(grants, applied, err, took) })
	}
}

func (r *reporter) finished(operation Operation) {
	r.observe(func() { r.observer.Finished(operation) })
}

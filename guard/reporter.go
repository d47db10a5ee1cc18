package guard

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage"
)

// reporter reports events to the Observers and the Logger of a Config, if there are any.
type reporter struct {
	observers []*Observer
	logger    *slog.Logger
	logs      bool // the Config has a Logger
	losses    losses
}

func newReporter(observers []*Observer, l *slog.Logger) *reporter {
	r := &reporter{logger: callback.Logger(l), logs: l != nil}
	for _, o := range observers {
		if o != nil {
			r.observers = append(r.observers, o)
		}
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

// call calls a function of an Observer. A panic or a runtime.Goexit there must not keep
// the caller from passing on its turn and releasing its lease.
func (r *reporter) call(f func()) {
	if failure := callback.Run(f); failure != nil {
		r.logger.Error("guard: an Observer panicked", "panic", failure.Panic, "stack", failure.Stack)
	}
}

// started returns ctx with what the Observers add to it.
func (r *reporter) started(ctx context.Context, operation Operation) context.Context {
	for _, o := range r.observers {
		if f := o.Started; f != nil {
			with, operation := ctx, operation // copies, so that nothing is allocated without Observers
			r.call(func() {
				if returned := f(with, operation); returned != nil {
					with = returned
				}
			})
			ctx = with
		}
	}
	return ctx
}

func (r *reporter) acquiring(ctx context.Context, resource string, delta int) {
	for _, o := range r.observers {
		if f := o.Acquiring; f != nil {
			r.call(func() { f(ctx, resource, delta) })
		}
	}
}

func (r *reporter) queued(ctx context.Context, resource string, delta int) {
	for _, o := range r.observers {
		if f := o.Queued; f != nil {
			r.call(func() { f(ctx, resource, delta) })
		}
	}
}

func (r *reporter) acquired(ctx context.Context, g fence.Grant, wait time.Duration) {
	r.log(slog.LevelDebug, "guard: acquired", g, "wait", wait)
	for _, o := range r.observers {
		if f := o.Acquired; f != nil {
			r.call(func() { f(ctx, g, wait) })
		}
	}
}

func (r *reporter) leaseLost(err *fence.LeaseLostError, inUse bool) {
	r.log(slog.LevelDebug, "guard: lease lost", err.Grant, "reason", string(err.Reason), "in_use", inUse)
	if r.logs {
		r.losses.add(err, inUse, r.logger)
	}
	for _, o := range r.observers {
		if f := o.LeaseLost; f != nil {
			r.call(func() { f(err, inUse) })
		}
	}
}

// losses are the leases that were lost a moment ago. Those of one session are lost together, and are
// one line in the log.
type losses struct {
	mu       sync.Mutex
	byReason map[fence.LossReason]*lossesOf
}

type lossesOf struct {
	first *fence.LeaseLostError
	all   int
	inUse []string
}

// gatherLosses is how long losses are gathered for one line.
const gatherLosses = 100 * time.Millisecond

// maxLossNames bounds how many resources that were in use the line names.
const maxLossNames = 10

func (l *losses) add(err *fence.LeaseLostError, inUse bool, logger *slog.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.byReason[err.Reason]
	if of == nil {
		of = &lossesOf{first: err}
		if l.byReason == nil {
			l.byReason = map[fence.LossReason]*lossesOf{}
			time.AfterFunc(gatherLosses, func() { l.log(logger) })
		}
		l.byReason[err.Reason] = of
	}
	of.all++
	if inUse {
		of.inUse = append(of.inUse, err.Grant.Resource)
	}
}

// log logs what was gathered, and begins anew.
func (l *losses) log(logger *slog.Logger) {
	l.mu.Lock()
	lost := l.byReason
	l.byReason = nil
	l.mu.Unlock()
	for reason, of := range lost {
		args := []any{"resources", of.all, "in_use", len(of.inUse), "reason", string(reason)}
		if len(of.inUse) > 0 {
			args = append(args, "used", of.inUse[:min(len(of.inUse), maxLossNames)])
		}
		if of.first.Paused > 0 {
			args = append(args, "process_paused", of.first.Paused)
		}
		if of.first.Err != nil {
			args = append(args, "error", of.first.Err)
		}
		logger.Warn("guard: leases lost", args...)
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
	for _, o := range r.observers {
		if f := o.Released; f != nil {
			r.call(func() { f(g, err) })
		}
	}
}

func (r *reporter) claimed(ctx context.Context, g fence.Grant, took time.Duration) {
	r.log(slog.LevelDebug, "guard: claimed", g, "took", took)
	for _, o := range r.observers {
		if f := o.Claimed; f != nil {
			r.call(func() { f(ctx, g, took) })
		}
	}
}

func (r *reporter) rejected(ctx context.Context, e *RejectedError) {
	r.log(slog.LevelWarn, "guard: rejected", e.Grant, "reason", string(e.Reason), "stage", string(e.Stage),
		"current_epoch", e.Current.Epoch, "current_token", int64(e.Current.Token), "current_holder", e.Current.Holder)
	for _, o := range r.observers {
		if f := o.Rejected; f != nil {
			r.call(func() { f(ctx, e) })
		}
	}
}

// unknown reports an outcome that has just become unknown.
func (r *reporter) unknown(ctx context.Context, e *UnknownOutcomeError, took time.Duration) {
	for _, g := range e.Grants {
		r.log(slog.LevelError, "guard: outcome of COMMIT is unknown", g,
			"op_id", e.Record.ID, "op_name", e.Record.Name, "error", e.Err, "ask_error", e.AskErr, "took", took)
	}
	r.resolved(ctx, e.Grants, e.Record, false, e.AskErr, took)
}

func (r *reporter) resolved(ctx context.Context, grants []fence.Grant, op storage.OpRecord, applied bool, err error, took time.Duration) {
	for _, g := range grants {
		if err == nil {
			r.log(slog.LevelInfo, "guard: resolved a COMMIT in doubt", g, "op_id", op.ID, "op_name", op.Name, "applied", applied, "took", took)
		}
	}
	for _, o := range r.observers {
		if f := o.Resolved; f != nil {
			r.call(func() { f(ctx, grants, applied, err, took) })
		}
	}
}

func (r *reporter) finished(ctx context.Context, operation Operation) {
	for _, o := range r.observers {
		if f := o.Finished; f != nil {
			operation := operation // as in started
			r.call(func() { f(ctx, operation) })
		}
	}
}

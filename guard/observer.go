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

// Observer has functions that a Guard calls when something happens, for metrics and traces; packages
// guardprometheus and guardotel make Observers. Any may be nil. The Guard waits for them and calls them
// concurrently, so they must be fast and must not call the Guard. One Observer may serve several Guards. Don't
// change it after New. [Guard.Close] doesn't wait for Started, Queued and Finished.
//
// Each call runs on a goroutine of its own; a panic or runtime.Goexit there is logged, and the operation goes on. A
// ctx is that of the call, with what Started has added; in a shared transaction, that of one of the calls.
type Observer struct {
	// Started: an operation began. The context that it returns, derived from ctx, becomes the operation's; nil
	// changes nothing. Of operation only Resources, Record and ReadOnly are set. Finished follows.
	Started func(ctx context.Context, operation Operation) context.Context
	// Queued: a call began (delta is 1) or ceased (-1) to wait for its turn at resource in this process.
	Queued func(ctx context.Context, resource string, delta int)
	// Acquiring: a call began (delta is 1) or ceased (-1) to wait until the lock service grants resource.
	Acquiring func(ctx context.Context, resource string, delta int)
	// Acquired: the lock service granted a resource after wait. One Released follows.
	Acquired func(ctx context.Context, grant fence.Grant, wait time.Duration)
	// LeaseLost: a lease ended without being released. inUse: a call used the resource. Released follows.
	LeaseLost func(err *fence.LeaseLostError, inUse bool)
	// Released: the Guard gave up a grant. err is the lock service's answer, or context.DeadlineExceeded if there
	// was none within 5 s; the release then goes on in the background, and at the latest the lease runs out.
	Released func(grant fence.Grant, err error)
	// Claimed: a claim raised the fence to the grant; not one that an operation's own transaction made.
	Claimed func(ctx context.Context, grant fence.Grant, took time.Duration)
	// Rejected: the fence rejected a grant.
	Rejected func(ctx context.Context, rejection *RejectedError)
	// Resolved: the store was asked about a COMMIT in doubt. If err is not nil, there is no answer yet.
	Resolved func(ctx context.Context, grants []fence.Grant, applied bool, err error, took time.Duration)
	// Finished: an operation ended.
	Finished func(ctx context.Context, operation Operation)
}

// Operation describes an operation of Do, Value or Exec, and how it ended.
type Operation struct {
	Resources []string
	Record    storage.OpRecord
	ReadOnly  bool
	Grants    []fence.Grant // of the last run, one for each resource; nil if none began, or it read without a lock
	Outcome   Outcome
	Err       error
	Runs      int // including those that ended before the function
	Took      time.Duration

	BatchSize  int // calls that shared its last transaction, with this one; 0 if none began
	BatchPlace int // its place among them, from 0
}

// Outcome is how an operation ended.
type Outcome string

const (
	OutcomeCommitted Outcome = "committed" // took effect; with ReadOnly: was answered
	OutcomeRepeated  Outcome = "repeated"  // had taken effect earlier: see Once
	OutcomeFailed    Outcome = "failed"
	OutcomeRejected  Outcome = "rejected"
	OutcomeUnknown   Outcome = "unknown"
	OutcomePanicked  Outcome = "panicked" // the function panicked or ended its goroutine; no effect
)

func outcomeOf(err error, grants []fence.Grant) Outcome {
	switch {
	case err == nil:
		return OutcomeCommitted
	case errors.Is(err, ErrUnknownOutcome):
		return OutcomeUnknown
	case rejectionOf(err, grants...) != nil:
		return OutcomeRejected
	}
	return OutcomeFailed
}

type reporter struct {
	observers []*Observer
	logger    *slog.Logger
	logs      bool
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

// callObserver keeps a panic or runtime.Goexit of an Observer from its caller, which has to pass on its turn and its lease.
func (r *reporter) callObserver(there bool, f func()) {
	if !there {
		return
	}
	if failure := callback.Run(f); failure != nil {
		r.logger.Error("guard: an Observer panicked", "panic", failure.Panic, "stack", failure.Stack)
	}
}

func (r *reporter) started(ctx context.Context, operation *Operation) context.Context {
	for _, o := range r.observers {
		with := ctx
		r.callObserver(o.Started != nil, func() {
			if returned := o.Started(with, *operation); returned != nil {
				with = returned
			}
		})
		ctx = with
	}
	return ctx
}

func (r *reporter) finished(ctx context.Context, operation *Operation) {
	for _, o := range r.observers {
		r.callObserver(o.Finished != nil, func() { o.Finished(ctx, *operation) })
	}
}

func (r *reporter) acquiring(ctx context.Context, resource string, delta int) {
	for _, o := range r.observers {
		r.callObserver(o.Acquiring != nil, func() { o.Acquiring(ctx, resource, delta) })
	}
}

func (r *reporter) queued(ctx context.Context, resource string, delta int) {
	for _, o := range r.observers {
		r.callObserver(o.Queued != nil, func() { o.Queued(ctx, resource, delta) })
	}
}

func (r *reporter) acquired(ctx context.Context, g fence.Grant, wait time.Duration) {
	r.log(slog.LevelDebug, "guard: acquired", g, "wait", wait)
	for _, o := range r.observers {
		r.callObserver(o.Acquired != nil, func() { o.Acquired(ctx, g, wait) })
	}
}

func (r *reporter) leaseLost(err *fence.LeaseLostError, inUse bool) {
	r.log(slog.LevelDebug, "guard: lease lost", err.Grant, "reason", string(err.Reason), "in_use", inUse)
	if r.logs {
		r.losses.add(err, inUse, r.logger)
	}
	for _, o := range r.observers {
		r.callObserver(o.LeaseLost != nil, func() { o.LeaseLost(err, inUse) })
	}
}

// losses makes one line in the log of leases lost at about the same time, as those of a session are.
type losses struct {
	mu       sync.Mutex
	byReason map[fence.LossReason]*lossesOf
}

type lossesOf struct {
	first *fence.LeaseLostError
	all   int
	inUse []string
}

const gatherLosses = 100 * time.Millisecond

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
		r.callObserver(o.Released != nil, func() { o.Released(g, err) })
	}
}

func (r *reporter) claimed(ctx context.Context, g fence.Grant, took time.Duration) {
	r.log(slog.LevelDebug, "guard: claimed", g, "took", took)
	for _, o := range r.observers {
		r.callObserver(o.Claimed != nil, func() { o.Claimed(ctx, g, took) })
	}
}

func (r *reporter) rejected(ctx context.Context, e *RejectedError) {
	r.log(slog.LevelWarn, "guard: rejected", e.Grant, "reason", string(e.Reason), "stage", string(e.Stage),
		"current_epoch", e.Current.Epoch, "current_token", int64(e.Current.Token), "current_holder", e.Current.Holder)
	for _, o := range r.observers {
		r.callObserver(o.Rejected != nil, func() { o.Rejected(ctx, e) })
	}
}

func (r *reporter) unknown(ctx context.Context, e *UnknownOutcomeError, took time.Duration) {
	for _, g := range e.Grants {
		r.log(slog.LevelError, "guard: outcome of COMMIT is unknown", g,
			"op_id", e.Record.ID, "op_name", e.Record.Name, "error", e.Err, "ask_error", e.AskErr, "took", took)
	}
	r.resolved(ctx, e, false, e.AskErr, took)
}

func (r *reporter) resolved(ctx context.Context, e *UnknownOutcomeError, applied bool, err error, took time.Duration) {
	for _, g := range e.Grants {
		if err == nil {
			r.log(slog.LevelInfo, "guard: resolved a COMMIT in doubt", g, "op_id", e.Record.ID, "op_name", e.Record.Name, "applied", applied, "took", took)
		}
	}
	for _, o := range r.observers {
		r.callObserver(o.Resolved != nil, func() { o.Resolved(ctx, e.Grants, applied, err, took) })
	}
}

type observedElection struct {
	fence.Election
	name   string
	report *reporter
}

func (e *observedElection) Campaign(ctx context.Context, value string) (fence.Leadership, error) {
	start := time.Now()
	l, err := e.campaign(ctx, value)
	if err != nil {
		return nil, err
	}
	e.report.acquired(ctx, l.Grant(), time.Since(start))
	led := &observedLeadership{Leadership: l, report: e.report}
	l.AfterLost(led.lost)
	return led, nil
}

func (e *observedElection) campaign(ctx context.Context, value string) (fence.Leadership, error) {
	e.report.acquiring(ctx, e.name, 1)
	defer e.report.acquiring(ctx, e.name, -1)
	return e.Election.Campaign(ctx, value)
}

type observedLeadership struct {
	fence.Leadership
	report *reporter
	ended  sync.Once
}

func (l *observedLeadership) lost() {
	var loss *fence.LeaseLostError
	if errors.As(l.Err(), &loss) {
		l.report.leaseLost(loss, true)
	}
	l.released(nil)
}

func (l *observedLeadership) released(err error) {
	l.ended.Do(func() { l.report.released(l.Grant(), err) })
}

func (l *observedLeadership) Resign(ctx context.Context) error { return l.Release(ctx) }

func (l *observedLeadership) Release(ctx context.Context) error {
	err := l.Leadership.Release(ctx)
	if !errors.Is(l.Err(), fence.ErrLeaseLost) {
		l.released(err)
	}
	return err
}

package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Do runs fn in a transaction under a grant of resource, once that grant has been
// claimed (G1), and commits. fn reads, decides and writes through tx: nobody older
// can commit any more, and if it commits, nobody newer has claimed (G3). It runs
// on the calling goroutine, at most once unless the option Retryable is given.
//
// If Do returns nil, fn's work took effect. If it returns ErrUnknownOutcome, that
// could not be learned. If it returns any other error, fn's work took no effect
// and never will (G4), but for what a COMMIT of fn's own wrote, which stays and
// makes Do return ErrTxEnded. If fn returns an error, panics or ends its
// goroutine, everything is rolled back; Do returns fn's error.
//
// The end of ctx ends the waiting, and fn through its own context. Once COMMIT
// was sent it has no effect: Do waits for the outcome, within Config.CommitTimeout
// and Config.ResolveTimeout. fn's context also ends when the lease is lost, with
// the *fence.LeaseLostError as its cause; if fn goes on nevertheless the fence
// decides about its commit. A context that fn is given is for fn alone: a call of
// the same Guard with it returns ErrNested.
func Do[Tx any](ctx context.Context, g *Guard[Tx], resource string, fn func(ctx context.Context, tx Tx) error, opts ...Option) error {
	if fn == nil {
		return errNoFunction
	}
	return Exec(ctx, g, resource, storage.Func[Tx](fn), opts...)
}

// Value is Do for a function that returns a value. It returns the zero value with
// every error, as what fn read may then rest on nothing.
func Value[Tx, V any](ctx context.Context, g *Guard[Tx], resource string, fn func(ctx context.Context, tx Tx) (V, error), opts ...Option) (V, error) {
	return valueOf(fn, opts, func(fn func(ctx context.Context, tx Tx) error, opts ...Option) error {
		return Do(ctx, g, resource, fn, opts...)
	})
}

// valueOf returns the value of a function that do runs.
func valueOf[Tx, V any](fn func(ctx context.Context, tx Tx) (V, error), opts []Option,
	do func(fn func(ctx context.Context, tx Tx) error, opts ...Option) error) (V, error) {
	var value, zero V
	if fn == nil {
		return zero, errNoFunction
	}
	err := do(func(ctx context.Context, tx Tx) (err error) {
		value, err = fn(ctx, tx)
		return err
	}, append(slices.Clone(opts), resultIn(&value))...)
	if err != nil {
		return zero, err
	}
	return value, nil
}

// Exec is Do for an operation of the store's own kind.
func Exec[Tx any](ctx context.Context, g *Guard[Tx], resource string, op storage.Op[Tx], opts ...Option) error {
	if f, ok := op.(storage.Func[Tx]); op == nil || ok && f == nil {
		return errNoFunction
	}
	return g.exec(ctx, []string{resource}, op, opts)
}

var errNoFunction = fmt.Errorf("%w: nil function or Op", ErrInvalid)

// exec runs op under grants of resources, which are in order, each once.
func (g *Guard[Tx]) exec(ctx context.Context, resources []string, op storage.Op[Tx], opts []Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if err := g.admit(ctx, resources...); err != nil {
		return err
	}
	return g.observe(resources, o, func(f *Finish) error {
		h := &hand{keeper: g.keeper, resources: resources}
		defer func() { h.giveBack(ctx, 0) }()
		return retry(ctx, o, againAnew, func() error { return g.runOnce(ctx, h, op, o, f) })
	})
}

// runOnce runs op once, under tenures that h takes.
func (g *Guard[Tx]) runOnce(ctx context.Context, h *hand, op storage.Op[Tx], o options, f *Finish) error {
	tenures, err := g.own(ctx, h)
	if tenures != nil {
		f.Grants = standingsOf(tenures).grants()
		f.Runs++
	}
	if err != nil {
		return err
	}
	enter := func() (context.Context, context.CancelCauseFunc) {
		return g.opContext(ctx, insideDo, g.keeper.cfg.MaxRun, tenures...)
	}
	return g.attempt(ctx, enter, standingsOf(tenures), op, o.over(h.resources), f)
}

// admit refuses calls that can't be run.
func (g *Guard[Tx]) admit(ctx context.Context, resources ...string) error {
	if g == nil {
		return fmt.Errorf("%w: nil Guard", ErrInvalid)
	}
	for _, resource := range resources {
		if invalid := new(fence.InvalidGrantError); errors.As(fence.ValidateResource(resource), &invalid) {
			return fmt.Errorf("%w: resource name %s", ErrInvalid, invalid.Reason)
		}
	}
	return nested(ctx, g, resources...)
}

// inside is the key under which a context says that it is that of a function
// which runner, a *Guard or a *Held, runs. Its value is a scope.
type inside struct{ runner any }

// scope is what a function runs under, and what it is to use.
type scope struct {
	use       string
	resources []string
}

const (
	insideDo   = "the transaction at hand"
	insideHold = "h.Do"
)

// nested refuses a call by a function that runner runs.
func nested(ctx context.Context, runner any, resources ...string) error {
	in, ok := ctx.Value(inside{runner}).(scope)
	if !ok {
		return nil
	}
	for _, resource := range resources {
		if !slices.Contains(in.resources, resource) {
			return fmt.Errorf("%w: the function runs under %s: name %s beside it in one DoAll", ErrNested, strings.Join(in.resources, ", "), resource)
		}
	}
	return fmt.Errorf("%w: use %s", ErrNested, in.use)
}

// opContext returns the context for a function under tenures, which is to use use,
// and to run for at most limit, if that is not zero.
func (g *Guard[Tx]) opContext(ctx context.Context, use string, limit time.Duration, tenures ...*tenure) (context.Context, context.CancelCauseFunc) {
	in := scope{use: use}
	for _, t := range tenures {
		in.resources = append(in.resources, t.grant.Resource)
	}
	opCtx, cancel := context.WithCancelCause(context.WithValue(ctx, inside{g}, in))
	stops := []func() bool{context.AfterFunc(g.keeper.killed, func() { cancel(ErrClosed) })}
	for _, t := range tenures {
		lease := t.lease.Context()
		stops = append(stops, context.AfterFunc(lease, func() { cancel(context.Cause(lease)) }))
	}
	if limit > 0 {
		overran := make(chan struct{})
		timer := time.AfterFunc(limit, func() {
			defer close(overran)
			cancel(fmt.Errorf("%w (Config.MaxRun is %v)", ErrOverran, limit))
			g.keeper.overran(tenures)
		})
		stops = append(stops, sync.OnceValue(func() bool {
			stopped := timer.Stop()
			if !stopped {
				<-overran // before another call may use the tenures
			}
			return stopped
		}))
	}
	return opCtx, func(cause error) {
		for _, stop := range stops {
			stop()
		}
		cancel(cause)
	}
}

// observe tells the Observer how a call ends.
func (g *Guard[Tx]) observe(resources []string, o options, call func(f *Finish) error) error {
	start := time.Now()
	f := Finish{Resources: resources, Op: o.record, Outcome: OutcomePanicked}
	defer func() {
		f.Took = time.Since(start)
		g.report.finished(f)
	}()
	f.Err = call(&f)
	if f.Err != nil || f.Outcome != OutcomeRepeated {
		f.Outcome = outcomeOf(f.Err, f.Grants)
	}
	return f.Err
}

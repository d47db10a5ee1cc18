package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Held is a grant that is held over several transactions. See Hold. All methods
// may be called from several goroutines; transactions run one after another.
type Held[Tx any] struct {
	guard  *Guard[Tx]
	tenure *tenure
	ctx    context.Context // ends when the function that Hold runs has returned
	turn   chan struct{}   // has room while no transaction runs
	over   bool            // Hold has returned; written and read with the turn
}

// Hold runs fn while one grant of resource is held, which has been claimed when
// fn begins. fn may run several transactions with h.Do, and carry h.Grant() to
// other services in between. What it read in an earlier transaction still holds
// in a later one that commits: if anybody has written under a higher grant, that
// one is refused with ErrStaleToken, and if anybody has under this very grant,
// with ErrOvertaken. After that, and after a COMMIT that was not applied, every
// h.Do of this Hold is refused: what was read may be out of date. Begin anew.
//
// So h.Grant() is for receivers that keep their fences in another database. One
// that writes to this database under the grant (DoGrant) moves the fence, and the
// next h.Do is refused with ErrOvertaken.
//
// This is so for what is read through h.Do. What is read on another connection
// while the grant is held is covered as long as the database doesn't lose what it
// has committed.
//
// fn's context ends as it does for Do. Each transaction takes effect by itself:
// an error of fn undoes none that has committed. While fn runs no other call for
// the resource does. When fn has returned, Hold ends the contexts of transactions
// that other goroutines have begun with h.Do, and waits for those.
func Hold[Tx any](ctx context.Context, g *Guard[Tx], resource string, fn func(ctx context.Context, h *Held[Tx]) error) error {
	if fn == nil {
		return errNoFunction
	}
	if err := g.admit(ctx, resource); err != nil {
		return err
	}
	taken := &hand{keeper: g.keeper, resources: []string{resource}}
	defer func() { taken.giveBack(ctx, 0) }()
	tenures, err := g.own(ctx, taken)
	if err != nil {
		return err
	}
	g.keeper.holding(taken.lines[0], true)
	defer g.keeper.holding(taken.lines[0], false)
	return g.hold(ctx, tenures[0], g.keeper.cfg.MaxRun, fn)
}

// HoldLease is Hold under a lease that the caller has acquired, such as a leader's,
// and goes on to own: when fn has returned the lease is as it was. So fn may run for as
// long as the caller leads; Config.MaxRun bounds each h.Do, and releases nothing. To
// bound all of it give ctx a deadline.
//
// Two at a time under one lease don't wait for each other: of their transactions, the
// later one to commit is refused with ErrOvertaken. Its grant's resource is the fence
// that the transactions move, so what a deposed leader writes is refused once its
// successor's HoldLease has begun. A Do of that resource in the leader's own process
// waits until the lease is released: write with h.Do.
func HoldLease[Tx any](ctx context.Context, g *Guard[Tx], lease fence.Lease, fn func(ctx context.Context, h *Held[Tx]) error) error {
	if fn == nil {
		return errNoFunction
	}
	if isNil(lease) {
		return fmt.Errorf("%w: HoldLease needs a lease", ErrInvalid)
	}
	grant := lease.Grant()
	if err := g.admit(ctx, grant.Resource); err != nil {
		return err
	}
	if err := lease.Context().Err(); err != nil {
		return withCause(lease.Context(), fmt.Errorf("guard: %s: %w", grant.Resource, err))
	}
	t := &tenure{lease: lease, borrowed: true, standing: standing{grant: grant}}
	if err := g.keeper.enter(ctx, t); err != nil {
		return err
	}
	defer g.keeper.leave(t, t.doubt)
	return g.hold(ctx, t, 0, fn)
}

// hold runs fn under t, for at most limit, if that is not zero.
func (g *Guard[Tx]) hold(ctx context.Context, t *tenure, limit time.Duration, fn func(ctx context.Context, h *Held[Tx]) error) error {
	if err := g.ready(ctx, &t.standing); err != nil {
		return err
	}
	t.held = true
	defer func() { t.held = false }()
	opCtx, end := g.opContext(ctx, insideHold, limit, t)
	h := &Held[Tx]{guard: g, tenure: t, ctx: opCtx, turn: make(chan struct{}, 1)}
	defer h.end()
	defer end(fence.ErrReleased)
	return withCause(opCtx, fn(opCtx, h))
}

// Grant returns the grant that is held, to be sent along with what is asked of
// others. If they write to the same database under it, the next Do is refused.
func (h *Held[Tx]) Grant() fence.Grant { return h.tenure.grant }

// Do is guard.Do under the grant that is held. It never acquires another one.
// Called with the context of a function that h runs it is ErrNested; after Hold
// has returned it is fence.ErrReleased.
func (h *Held[Tx]) Do(ctx context.Context, fn func(ctx context.Context, tx Tx) error, opts ...Option) error {
	if fn == nil {
		return errNoFunction
	}
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if err := nested(ctx, h); err != nil {
		return err
	}
	resource := h.Grant().Resource
	return h.guard.observe([]string{resource}, o, func(f *Finish) error {
		f.Grants = []fence.Grant{h.Grant()}
		select {
		case h.turn <- struct{}{}:
		case <-ctx.Done():
			return leftLine(ctx, resource, anotherCall)
		}
		defer func() { <-h.turn }()
		if h.over {
			return fmt.Errorf("guard: %s: %w", resource, fence.ErrReleased)
		}
		return retry(ctx, o, h.again, func() error { return h.runOnce(ctx, storage.Func[Tx](fn), o, f) })
	})
}

// again allows another run only while the position that this Hold has read at is
// still the fence's: an earlier transaction's reads are not read anew.
func (h *Held[Tx]) again(err error) bool { return temporary(err) && h.tenure.claimed }

// runOnce runs op once with the turn.
func (h *Held[Tx]) runOnce(ctx context.Context, op storage.Op[Tx], o options, f *Finish) error {
	f.Runs++
	s := &h.tenure.standing
	err := h.guard.attempt(ctx, func() (context.Context, context.CancelCauseFunc) { return h.opContext(ctx) }, standings{s}, op, o, f)
	if err == nil || s.claimed || s.doubt != nil {
		return err
	}
	return fmt.Errorf("guard: %s: what was read may be out of date: this Hold is over, begin it anew: %w", s.grant.Resource, err)
}

// opContext is Guard.opContext for a transaction of h: it ends with the Hold too.
func (h *Held[Tx]) opContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	opCtx, end := h.guard.opContext(context.WithValue(ctx, inside{h}, scope{use: insideDo}), insideDo, h.guard.keeper.cfg.MaxRun, h.tenure)
	stop := context.AfterFunc(h.ctx, func() { end(context.Cause(h.ctx)) })
	return opCtx, func(cause error) {
		stop()
		end(cause)
	}
}

// end waits for a transaction that another goroutine has begun, and lets none
// begin any more.
func (h *Held[Tx]) end() {
	h.turn <- struct{}{}
	h.over = true
	<-h.turn
}

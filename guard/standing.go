package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// standing is what this process knows about where a grant stands in a store. One
// goroutine at a time uses it.
type standing struct {
	grant   fence.Grant
	claim   Claim
	claimed bool                 // claim is good, as far as is known
	doubt   *UnknownOutcomeError // a transaction whose outcome could not be learned
	held    bool                 // what was read under claim is still in use: see Hold
	refused error                // the latest refusal
	dead    bool                 // nothing more is to be begun under the grant
}

// applied takes the outcome of a transaction that was in doubt.
func (s *standing) applied(d InDoubt) {
	s.claim = d.Claims[0]
	s.claim.Position = Position{Seq: s.claim.Seq + 1, Tx: d.Tx}
	s.claimed = true
}

// engine runs operations in a store under a standing.
type engine[Tx any] struct {
	store          Store[Tx]
	commitTimeout  time.Duration
	resolveTimeout time.Duration
	report         *reporter
}

// ready makes sure that no transaction of the grant is unresolved (G6) and that
// the grant is claimed (G1).
func (e *engine[Tx]) ready(ctx context.Context, s *standing) error {
	if s.doubt != nil {
		if err := e.settle(ctx, s); err != nil {
			return err
		}
	}
	if s.claimed {
		return nil
	}
	if s.held {
		// A claim would return the present position, and what was read at an
		// earlier one would pass for up to date.
		return cmp.Or(s.refused, ErrOvertaken)
	}
	start := time.Now()
	claim, err := e.store.Claim(ctx, s.grant)
	if err != nil {
		return e.failed(ctx, s, "claim", err)
	}
	s.claim, s.claimed = claim, true
	e.report.claimed(s.grant, time.Since(start))
	return nil
}

// settle asks once more about the transaction in doubt. If that fails the grant
// is not used any further where there can be another: the claim of the next one
// rules the transaction out, or comes after it.
func (e *engine[Tx]) settle(ctx context.Context, s *standing) error {
	ctx, cancel := context.WithTimeout(ctx, e.resolveTimeout)
	defer cancel()
	start := time.Now()
	applied, err := e.store.Resolve(ctx, s.doubt.InDoubt)
	e.report.resolved(s.grant, s.doubt.Op, applied, err, time.Since(start))
	if err != nil {
		s.dead = true
		return e.failed(ctx, s, "an earlier operation is unresolved", err)
	}
	if applied {
		s.applied(s.doubt.InDoubt)
	}
	s.doubt = nil
	return nil
}

// attempt runs op once, in a transaction of its own (G4). opCtx is for op: it may
// end before ctx does, and whether op's work may then be committed is for the
// fence to decide.
func (e *engine[Tx]) attempt(ctx, opCtx context.Context, s *standing, op Op[Tx], record OpRecord) error {
	if err := e.ready(ctx, s); err != nil {
		return err
	}
	txn, err := e.store.Begin(ctx, s.claim)
	if err != nil {
		return e.failed(ctx, s, "begin", err)
	}
	if err := run(opCtx, txn, op); err != nil {
		return e.judge(s, withCause(opCtx, err))
	}
	if ctx.Err() != nil {
		txn.Rollback(ctx)
		return ended(ctx)
	}
	return e.commit(ctx, s, txn, record)
}

// run runs op in txn, and rolls back unless it returned nil: also if it panics or
// ends its goroutine, which then goes on unhindered.
func run[Tx any](ctx context.Context, txn Txn[Tx], op Op[Tx]) (err error) {
	done := false
	defer func() {
		if !done {
			txn.Rollback(ctx)
		}
	}()
	err = txn.Run(ctx, op)
	done = err == nil
	return err
}

// commit commits txn. COMMIT has three outcomes: it took effect, it did not, or
// the reply was lost. Then the store is asked. The end of the caller's ctx must
// not cause a doubt, nor cut short its settlement.
func (e *engine[Tx]) commit(ctx context.Context, s *standing, txn Txn[Tx], record OpRecord) error {
	detached := context.WithoutCancel(ctx)
	commitCtx, cancel := context.WithTimeout(detached, e.commitTimeout)
	defer cancel()
	s.claimed = false // the position is known again when the outcome is
	claims, err := txn.Commit(commitCtx, []OpRecord{record})
	if err == nil {
		s.claim, s.claimed = claims[0], true
		return nil
	}
	var doubt *InDoubtError
	if errors.As(err, &doubt) {
		return e.resolve(detached, s, record, doubt)
	}
	s.claimed = true // nothing was committed, so the position is what it was
	return e.judge(s, err)
}

// resolve asks what became of a COMMIT until there is an answer or the time is up.
func (e *engine[Tx]) resolve(ctx context.Context, s *standing, record OpRecord, doubt *InDoubtError) error {
	ctx, cancel := context.WithTimeout(ctx, e.resolveTimeout)
	defer cancel()
	start := time.Now()
	for tries := 1; ; tries++ {
		applied, err := e.store.Resolve(ctx, doubt.InDoubt)
		switch {
		case err == nil && applied:
			e.report.resolved(s.grant, record, true, nil, time.Since(start))
			s.applied(doubt.InDoubt)
			return nil
		case err == nil:
			e.report.resolved(s.grant, record, false, nil, time.Since(start))
			return &notAppliedError{resource: s.grant.Resource, err: doubt.Err}
		case refusalOf(err, s.grant) != nil || !pause(ctx, tries):
			s.doubt = newUnknownOutcomeError(e.store, s.grant, record, doubt, e.judge(s, err))
			e.report.unknown(s.doubt, time.Since(start))
			return s.doubt
		}
	}
}

// failed returns the error for a step of the store that failed before op ran. A
// refusal speaks for itself.
func (e *engine[Tx]) failed(ctx context.Context, s *standing, step string, err error) error {
	if refusalOf(err, s.grant) == nil {
		err = withCause(ctx, fmt.Errorf("guard: %s: %s: %w", s.grant.Resource, step, err))
	}
	return e.judge(s, err)
}

// judge draws the consequences of err for s, and returns err.
func (e *engine[Tx]) judge(s *standing, err error) error {
	if refusal := refusalOf(err, s.grant); refusal != nil {
		e.report.refused(refusal)
		s.claimed = false
		s.refused = err
		s.dead = s.dead || refusal.Reason != ReasonOvertaken
	}
	return err
}

// refusalOf returns the refusal of grant in err, or nil. A refusal of another
// grant is what an operation met elsewhere and says nothing about this one.
func refusalOf(err error, grant fence.Grant) *RefusedError {
	var refusal *RefusedError
	if errors.As(err, &refusal) && refusal.Grant == grant {
		return refusal
	}
	return nil
}

// ended returns the error for an operation that ctx's end kept from beginning or
// from committing; nil if ctx goes on.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return withCause(ctx, fmt.Errorf("guard: %w", err))
	}
	return nil
}

// leftLine returns the error for a call that ctx's end kept from its turn at
// resource.
func leftLine(ctx context.Context, resource string) error {
	return withCause(ctx, fmt.Errorf("guard: %s: gave up waiting behind another call of this process: %w", resource, ctx.Err()))
}

// withCause adds the cause of ctx's end to an error that is about its end.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	aboutEnd := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if cause == nil || !aboutEnd || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

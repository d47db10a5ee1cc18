package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// standing is what this process knows about where a grant stands in a store. One
// goroutine at a time uses it.
type standing struct {
	grant    fence.Grant
	superior fence.Grant // known to have claimed before the lock service was asked for grant; zero if none is
	claim    storage.Claim
	claimed  bool                 // claim is good, as far as is known
	doubt    *UnknownOutcomeError // a transaction whose outcome could not be learned
	held     bool                 // what was read under claim is still in use: see Hold
	refused  error                // the latest refusal
	dead     bool                 // nothing more is to be begun under the grant

	travelled bool // the grant came from elsewhere: see Guard.UnderGrant
}

// applied takes the outcome of a transaction that was in doubt.
func (s *standing) applied(d storage.InDoubt) {
	i := slices.IndexFunc(d.Claims, func(c storage.Claim) bool { return c.Grant == s.grant })
	s.claim = d.Claims[i]
	s.claim.Position = storage.Position{Seq: s.claim.Seq + 1, Tx: d.Tx}
	s.claimed = true
}

// refuse draws the consequences of a refusal of s's grant.
func (s *standing) refuse(reason storage.Reason, err error) {
	s.claimed = false
	s.refused = err
	s.dead = s.dead || reason != storage.ReasonOvertaken
}

// standings are those of the grants that a transaction runs under.
type standings []*standing

func (ss standings) grants() []fence.Grant {
	grants := make([]fence.Grant, len(ss))
	for i, s := range ss {
		grants[i] = s.grant
	}
	return grants
}

func (ss standings) claims() []storage.Claim {
	claims := make([]storage.Claim, len(ss))
	for i, s := range ss {
		claims[i] = s.claim
	}
	return claims
}

// resources returns the names of the grants' resources.
func (ss standings) resources() []string {
	resources := make([]string, len(ss))
	for i, s := range ss {
		resources[i] = s.grant.Resource
	}
	return resources
}

// held says whether what is read under the claims is still in use when a transaction
// has ended.
func (ss standings) held(held bool) {
	for _, s := range ss {
		s.held = held
	}
}

// allClaimed reports whether all claims are good.
func (ss standings) allClaimed() bool {
	return !slices.ContainsFunc(ss, func(s *standing) bool { return !s.claimed })
}

// claimed says whether the claims are good.
func (ss standings) claimed(good bool) {
	for _, s := range ss {
		s.claimed = good
	}
}

// names returns the resources of grants, for a message.
func names(grants []fence.Grant) string {
	resources := make([]string, len(grants))
	for i, g := range grants {
		resources[i] = g.Resource
	}
	return strings.Join(resources, ", ")
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
	ctx, cancel := e.patience(ctx)
	defer cancel()
	claim, err := e.store.Claim(ctx, s.grant)
	if err != nil {
		return e.failed(ctx, standings{s}, "claim", s.wentBack(err))
	}
	s.claim, s.claimed = claim, true
	e.report.claimed(s.grant, time.Since(start))
	return nil
}

// wentBack adds to the refusal of a claim that the lock service went back, if so:
// tokens rise in the order in which they are issued, so one that was known to have
// claimed before this one was asked for can't be the higher one. No clock could tell:
// this machine's may have stood still between asking and claiming.
func (s *standing) wentBack(err error) error {
	refusal := refusalOf(err, s.grant)
	if refusal == nil || refusal.Reason != storage.ReasonStale || s.superior.Compare(s.grant) <= 0 {
		return err
	}
	return &tokensWentBackError{refusal: refusal, err: err}
}

// settle asks once more about the transaction in doubt. If that fails the grant
// is not used any further where there can be another: the claim of the next one
// rules the transaction out, or comes after it.
func (e *engine[Tx]) settle(ctx context.Context, s *standing) error {
	ctx, cancel := context.WithTimeout(ctx, e.resolveTimeout)
	defer cancel()
	start := time.Now()
	applied, err := e.store.Resolve(ctx, s.doubt.inDoubt)
	e.report.resolved(s.doubt.Grants, s.doubt.Record, applied, err, time.Since(start))
	if err != nil {
		s.dead = true
		return e.failed(ctx, standings{s}, "an earlier operation is unresolved", err)
	}
	if applied {
		s.applied(s.doubt.inDoubt)
	}
	s.doubt = nil
	return nil
}

// failed returns the error for a step of the store that failed before op ran. A
// refusal speaks for itself.
func (e *engine[Tx]) failed(ctx context.Context, ss standings, step string, err error) error {
	if !ss.refused(err) {
		err = withCause(ctx, fmt.Errorf("guard: %s: %s: %w", names(ss.grants()), step, err))
	}
	return e.judge(ss, err)
}

// refused reports whether err refuses one of the grants.
func (ss standings) refused(err error) bool { return refusalOf(err, ss.grants()...) != nil }

// judge draws the consequences of err, and returns it.
func (e *engine[Tx]) judge(ss standings, err error) error {
	for _, s := range ss {
		if refusal := refusalOf(err, s.grant); refusal != nil {
			if s.travelled {
				refusal.Travelled = true
			}
			e.report.refused(refusal)
			s.refuse(refusal.Reason, err)
		}
	}
	return err
}

// refusalOf returns the refusal of one of grants in err, or nil. A refusal of
// another grant is what an operation met elsewhere and says nothing about these.
func refusalOf(err error, grants ...fence.Grant) *RejectedError {
	var refusal *RejectedError
	if errors.As(err, &refusal) && slices.Contains(grants, refusal.Grant) {
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
// resource, which it awaited behind another.
func leftLine(ctx context.Context, resource, behind string) error {
	return withCause(ctx, fmt.Errorf("guard: %s: gave up waiting behind %s: %w", resource, behind, ctx.Err()))
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

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

// grantState is what this process knows about where a grant stands in a store. One
// goroutine at a time uses it.
type grantState struct {
	grant         fence.Grant
	claimedBefore fence.Grant // known to have claimed before the lock service was asked for grant; zero if none is
	claim         storage.Claim
	claimed       bool                 // claim is good, as far as is known
	unresolved    *UnknownOutcomeError // a transaction whose outcome could not be learned
	inHold        bool                 // what was read under claim is still in use: see Hold
	rejected      error                // the latest rejection
	dead          bool                 // nothing more is to be begun under the grant
	travelled     bool                 // the grant came from elsewhere: see Guard.UnderGrant
}

// applied takes the outcome of a transaction that was in doubt.
func (s *grantState) applied(d storage.InDoubt) {
	i := slices.IndexFunc(d.Claims, func(c storage.Claim) bool { return c.Grant == s.grant })
	s.claim = d.Claims[i]
	s.claim.Position = storage.Position{Seq: s.claim.Seq + 1, Tx: d.Tx}
	s.claimed = true
}

// reject draws the consequences of a rejection of s's grant.
func (s *grantState) reject(reason storage.Reason, err error) {
	s.claimed = false
	s.rejected = err
	s.dead = s.dead || reason != storage.ReasonOvertaken
}

// grantStates are those of the grants that a transaction runs under.
type grantStates []*grantState

func (states grantStates) grants() []fence.Grant {
	grants := make([]fence.Grant, len(states))
	for i, s := range states {
		grants[i] = s.grant
	}
	return grants
}

func (states grantStates) claims() []storage.Claim {
	claims := make([]storage.Claim, len(states))
	for i, s := range states {
		claims[i] = s.claim
	}
	return claims
}

// resources returns the names of the grants' resources.
func (states grantStates) resources() []string {
	resources := make([]string, len(states))
	for i, s := range states {
		resources[i] = s.grant.Resource
	}
	return resources
}

// setInHold says whether what is read under the claims is still in use when a transaction
// has ended.
func (states grantStates) setInHold(inHold bool) {
	for _, s := range states {
		s.inHold = inHold
	}
}

// allClaimed reports whether all claims are good.
func (states grantStates) allClaimed() bool {
	return !slices.ContainsFunc(states, func(s *grantState) bool { return !s.claimed })
}

// setClaimed says whether the claims are good.
func (states grantStates) setClaimed(claimed bool) {
	for _, s := range states {
		s.claimed = claimed
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
func (e *engine[Tx]) ready(ctx context.Context, s *grantState) error {
	if s.unresolved != nil {
		if err := e.settle(ctx, s); err != nil {
			return err
		}
	}
	if s.claimed {
		return nil
	}
	if s.inHold {
		// A claim would return the present position, and what was read at an
		// earlier one would pass for up to date.
		return cmp.Or(s.rejected, ErrOvertaken)
	}
	start := time.Now()
	ctx, cancel := e.withStoreTimeout(ctx)
	defer cancel()
	claim, err := e.store.Claim(ctx, s.grant)
	if err != nil {
		return e.stepFailed(ctx, grantStates{s}, "claim", s.wentBack(err))
	}
	s.claim, s.claimed = claim, true
	e.report.claimed(s.grant, time.Since(start))
	return nil
}

// wentBack adds to the rejection of a claim that the lock service went back, if so:
// tokens rise in the order in which they are issued, so one that was known to have
// claimed before this one was asked for can't be the higher one. No clock could tell:
// this machine's may have stood still between asking and claiming.
func (s *grantState) wentBack(err error) error {
	rejection := rejectionOf(err, s.grant)
	if rejection == nil || rejection.Reason != storage.ReasonStale || s.claimedBefore.Compare(s.grant) <= 0 {
		return err
	}
	return &tokensWentBackError{rejection: rejection, err: err}
}

// settle asks once more about the transaction in doubt. If that fails the grant
// is not used any further where there can be another: the claim of the next one
// rules the transaction out, or comes after it.
func (e *engine[Tx]) settle(ctx context.Context, s *grantState) error {
	ctx, cancel := context.WithTimeout(ctx, e.resolveTimeout)
	defer cancel()
	start := time.Now()
	applied, err := e.store.Resolve(ctx, s.unresolved.inDoubt)
	e.report.resolved(s.unresolved.Grants, s.unresolved.Record, applied, err, time.Since(start))
	if err != nil {
		s.dead = true
		return e.stepFailed(ctx, grantStates{s}, "an earlier operation is unresolved", err)
	}
	if applied {
		s.applied(s.unresolved.inDoubt)
	}
	s.unresolved = nil
	return nil
}

// stepFailed returns the error for a step of the store that failed before op ran. A
// rejection speaks for itself.
func (e *engine[Tx]) stepFailed(ctx context.Context, states grantStates, step string, err error) error {
	if !states.rejectedBy(err) {
		err = withCause(ctx, fmt.Errorf("guard: %s: %s: %w", names(states.grants()), step, err))
	}
	return e.noteRejection(states, err)
}

// rejectedBy reports whether err rejects one of the grants.
func (states grantStates) rejectedBy(err error) bool {
	return rejectionOf(err, states.grants()...) != nil
}

// noteRejection draws the consequences of err, and returns it.
func (e *engine[Tx]) noteRejection(states grantStates, err error) error {
	for _, s := range states {
		if rejection := rejectionOf(err, s.grant); rejection != nil {
			if s.travelled {
				rejection.Travelled = true
			}
			e.report.rejected(rejection)
			s.reject(rejection.Reason, err)
		}
	}
	return err
}

// rejectionOf returns the rejection of one of grants in err, or nil. A rejection of
// another grant is what an operation met elsewhere and says nothing about these.
func rejectionOf(err error, grants ...fence.Grant) *RejectedError {
	var rejection *RejectedError
	if errors.As(err, &rejection) && slices.Contains(grants, rejection.Grant) {
		return rejection
	}
	return nil
}

// endError returns the error for an operation that ctx's end kept from beginning or
// from committing; nil if ctx goes on.
func endError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return withCause(ctx, fmt.Errorf("guard: %w", err))
	}
	return nil
}

// leftQueueError returns the error for a call that ctx's end kept from its turn at
// resource, which it awaited behind another.
func leftQueueError(ctx context.Context, resource, behind string) error {
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

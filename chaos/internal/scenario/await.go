package scenario

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

var expiryAtEveryAwait = Scenario{
	Name: "expiry-at-every-await", Family: "awaits", Workers: 2, Controls: []string{"etcd-mutex"},
	Summary:  "a worker is paused at each point at which an operation waits for the network, one after another, until its lease has ended and another has taken over",
	Requires: []string{check.HitFault + "pause"},
	Script:   steps(func(s *script, ctx context.Context) error { return s.awaits(ctx, fault.ThenPause) }),
}

var killAtEveryAwait = Scenario{
	Name: "kill-at-every-await", Family: "awaits", Workers: 2,
	Summary:  "a worker is killed at each point at which an operation waits for the network, one after another, and another takes over",
	Requires: []string{check.HitFault + "kill"},
	Script:   steps(func(s *script, ctx context.Context) error { return s.awaits(ctx, fault.ThenKill) }),
}

// maxAwaits is more than an operation has.
const maxAwaits = 200

// awaits pauses or kills a worker at the first await of an operation, which is where it
// sends or receives something over the network, then at the second, and so on to the last.
// Each time its lease ends there, and another worker takes over before it goes on.
func (s *script) awaits(ctx context.Context, then fault.Then) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	for skip := range maxAwaits {
		sprung, err := s.await(ctx, skip, then)
		if err != nil {
			return fmt.Errorf("at await %d: %w", skip, err)
		}
		if !sprung {
			s.Trace().Record(history.Event{Kind: history.Note, Name: fmt.Sprintf("an operation has %d awaits", skip)})
			return nil
		}
	}
	return fmt.Errorf("chaos: an operation has more than %d awaits", maxAwaits)
}

// await does so at one await. sprung is false if the operation ended before it.
func (s *script) await(ctx context.Context, skip int, then fault.Then) (sprung bool, err error) {
	w := s.Process(0)
	// A new process needs its own session, connection, lock and claim.
	if err := errors.Join(w.Stop(), w.Start(ctx)); err != nil {
		return false, err
	}
	t, err := w.SetTrap(worker.PointAwait, skip, then)
	if err != nil {
		return false, err
	}
	op, err := s.Operate(0, workload.Op{Resource: s.sku()})
	if err != nil {
		return false, err
	}
	if err := t.SprungBy(ctx, op); err != nil {
		return false, errors.Join(fault.IgnoreMissed(err), finish(ctx, op))
	}
	name := fmt.Sprintf("%s %s at await %d", then, w.Name(), skip)
	s.Trace().Record(history.Event{Kind: history.Injected, Name: name, Process: w.Name()})
	err = errors.Join(s.endLeases(ctx), s.succeed(ctx, 1))
	s.Trace().Record(history.Event{Kind: history.Reverted, Name: name, Process: w.Name()})
	if then == fault.ThenKill {
		return true, errors.Join(err, w.Start(ctx))
	}
	return true, errors.Join(err, w.Resume(), finish(ctx, op))
}

// endLeases ends all leases, as if they had expired.
func (s *script) endLeases(ctx context.Context) error {
	leases, err := s.Observer().Leases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases.Leases {
		if _, err := s.Observer().Revoke(ctx, l.ID); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
	}
	return nil
}

// succeed has a worker do operations until one succeeds, or that takes too long: the first
// may fail because the worker's lease is gone.
func (s *script) succeed(ctx context.Context, number int) error {
	bound := workload.ProgressBound
	if s.Group() != result.Fenced { // which a paused transaction may keep waiting for ever
		bound = takeover
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("%w: no operation succeeded within %v of the end of the leases", environment.ErrHangs, bound))
	defer cancel()
	for {
		op, err := s.Operate(number, workload.Op{Resource: s.sku()})
		if err != nil {
			return err
		}
		e, err := op.Wait(ctx)
		if err != nil || e.Kind == history.OK {
			return err
		}
	}
}

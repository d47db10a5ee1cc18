package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/clock"
)

var compaction = Scenario{
	Name: "compaction", Family: "waiters", Workers: 2,
	Summary:  "etcd compacts what the watch of a waiter that is cut off has not yet shown; the waiter has to get its turn nevertheless",
	Requires: []string{check.HitFault + "etcd-compact", check.HitCompacted, check.AtLeast(2, check.HitQueued)},
	Script:   steps((*script).compaction),
}

var noSpace = Scenario{
	Name: "nospace", Family: "nospace", Workers: 2,
	Summary:  "etcd has used up its space: a holder works on for longer than its time to live, new acquisitions fail, and all succeed when there is space again",
	Requires: []string{check.HitFault + "etcd-nospace", check.HitFailed + workload.ClassFull},
	Script:   steps((*script).noSpace),
}

// compaction compacts revisions that a waiter's watch has not yet shown. The waiter has to
// get its turn nevertheless. The watch may not have been open when the waiter was cut off;
// so the script repeats this until a watch has failed, or often enough.
func (s *script) compaction(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	noticed := s.Trace().Listen(func(e history.Event) bool { return e.Kind == history.Note && e.Name == history.NoteCompacted })
	defer noticed.Stop()
	for n := 0; n < maxCompactions && !noticed.Any(); n++ {
		e, err := s.compacted(ctx, noticed)
		if err != nil {
			return err
		}
		if e.Kind != history.OK && e.Class != workload.ClassAway { // a slow machine may lose a lease
			return fmt.Errorf("%w: the waiter failed: %s", ErrWrong, e.Error)
		}
	}
	return nil
}

const maxCompactions = 10

// compacted does so once, and returns how the waiter's operation ended.
func (s *script) compacted(ctx context.Context, noticed *history.Listener) (history.Event, error) {
	unlock, err := s.lock(ctx, s.sku())
	if err != nil {
		return history.Event{}, err
	}
	op, err := s.Operate(0, workload.Op{Resource: s.sku()})
	if err != nil {
		return history.Event{}, err
	}
	err = s.queue(ctx, 2, op)
	if err == nil {
		err = s.compactUnseen(ctx)
	}
	for began := time.Now(); err == nil && !noticed.Any() && !op.Ended() && time.Since(began) < workload.TTL; {
		err = clock.Sleep(ctx, 10*time.Millisecond)
	}
	if err := errors.Join(err, unlock(ctx)); err != nil {
		return history.Event{}, err
	}
	return op.Wait(ctx)
}

// compactUnseen writes and compacts revisions while the first worker is cut off.
func (s *script) compactUnseen(ctx context.Context) error {
	cut := fault.Partition{Worker: 0, From: fault.ToEtcd, Way: fault.BothWays}
	revert, err := s.Inject(ctx, cut)
	if err != nil {
		return err
	}
	// A connection that went on would deliver the events that are on their way.
	_, err = s.Inject(ctx, fault.Reset{Worker: 0, To: fault.ToEtcd})
	for range 2 { // the latest revision is never compacted
		if err == nil {
			_, err = s.Observer().Put(ctx, s.Prefix()+"/unseen", "")
		}
	}
	if err == nil {
		_, err = s.Inject(ctx, fault.EtcdCompact{})
	}
	return errors.Join(err, s.Revert(ctx, cut, revert))
}

// noSpace uses up etcd's space while a lock is held: the holder works on, for longer than
// its time to live, and new acquisitions fail with the reason.
func (s *script) noSpace(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	if _, err := s.do(ctx, 0, workload.Op{Resource: s.sku(), Action: "do"}); err != nil {
		return err
	}
	full := fault.EtcdNoSpace{}
	revert, err := s.Inject(ctx, full)
	if err != nil {
		return err
	}
	return errors.Join(s.whileFull(ctx), s.Revert(ctx, full, revert), s.succeed(ctx, 0), s.succeed(ctx, 1))
}

func (s *script) whileFull(ctx context.Context) error {
	lost := s.Trace().Listen(func(e history.Event) bool { return e.Kind == history.Lost })
	defer lost.Stop()
	for began := time.Now(); time.Since(began) < workload.TTL+workload.TTL/2; {
		e, err := s.do(ctx, 0, workload.Op{Resource: s.sku(), Action: "do"})
		if err != nil {
			return err
		}
		if e.Kind != history.OK && !lost.Any() { // a slow machine may lose a lease
			return fmt.Errorf("%w: the holder failed: %s", ErrWrong, e.Error)
		}
		if err := clock.Sleep(ctx, workload.TTL/10); err != nil {
			return err
		}
	}
	e, err := s.do(ctx, 1, workload.Op{Resource: s.Workload().Resources()[1]})
	if err == nil && e.Class != workload.ClassFull {
		err = fmt.Errorf("%w: a new acquisition ended as %s, %q", ErrWrong, e.Kind, e.Error)
	}
	return err
}

// do has a worker do an operation, and returns how it ended.
func (s *script) do(ctx context.Context, number int, op workload.Op) (history.Event, error) {
	pending, err := s.Operate(number, op)
	if err != nil {
		return history.Event{}, err
	}
	return pending.Wait(ctx)
}

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/clock"
)

// compaction has etcd forget what a waiter's watch has still to show. The waiter has to
// learn of its turn nevertheless. That happens to a watch only if there was one
// before the waiter was cut off, and so it is done until it has, or often enough.
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

// compacted does it once, and returns what became of the waiter.
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

// compactUnseen compacts what happens while the first worker is cut off.
func (s *script) compactUnseen(ctx context.Context) error {
	cut := fault.Partition{Worker: 0, From: fault.ToEtcd, Way: fault.BothWays}
	revert, err := s.Inject(ctx, cut)
	if err != nil {
		return err
	}
	// What is on its way to a connection that goes on would arrive after all.
	_, err = s.Inject(ctx, fault.Reset{Worker: 0, To: fault.ToEtcd})
	for range 2 { // the latest revision is never forgotten
		if err == nil {
			_, err = s.Observer().Put(ctx, s.Prefix()+"/unseen", "")
		}
	}
	if err == nil {
		_, err = s.Inject(ctx, fault.EtcdCompact{})
	}
	return errors.Join(err, s.Revert(ctx, cut, revert))
}

// noSpace fills etcd while somebody holds a lock: the holder works on, for longer
// than a lease lives, and others are told.
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
			return fmt.Errorf("%w: a holder failed: %s", ErrWrong, e.Error)
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

// do has a worker do an operation, and returns how that ended.
func (s *script) do(ctx context.Context, number int, op workload.Op) (history.Event, error) {
	pending, err := s.Operate(number, op)
	if err != nil {
		return history.Event{}, err
	}
	return pending.Wait(ctx)
}

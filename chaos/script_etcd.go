package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

// compaction has etcd forget what a waiter's watch has still to show. The waiter has to
// learn of its turn nevertheless. That happens to a watch only if there was one
// before the waiter was cut off, and so it is done until it has, or often enough.
func (s *Stage) compaction(ctx context.Context) error {
	if !s.Faults {
		return s.inTurn(ctx)
	}
	noticed := s.story.listen(func(e history.Event) bool { return e.Kind == history.Note && e.Name == history.NoteCompacted })
	defer noticed.stop()
	for n := 0; n < maxCompactions && !noticed.any(); n++ {
		e, err := s.compacted(ctx, noticed)
		if err != nil {
			return err
		}
		if e.Kind != history.OK && e.Class != classAway { // a slow machine may lose a lease
			return fmt.Errorf("%w: the waiter failed: %s", errWrong, e.Error)
		}
	}
	return nil
}

const maxCompactions = 10

// compacted does it once, and returns what became of the waiter.
func (s *Stage) compacted(ctx context.Context, noticed *listener) (history.Event, error) {
	unlock, err := s.lock(ctx, s.sku())
	if err != nil {
		return history.Event{}, err
	}
	op, err := s.Operate(0, Op{Resource: s.sku()})
	if err != nil {
		return history.Event{}, err
	}
	err = s.queue(ctx, 2, op)
	if err == nil {
		err = s.compactUnseen(ctx)
	}
	for began := time.Now(); err == nil && !noticed.any() && !op.over() && time.Since(began) < TTL; {
		err = wait(ctx, 10*time.Millisecond)
	}
	if err := errors.Join(err, unlock(ctx)); err != nil {
		return history.Event{}, err
	}
	return op.Wait(ctx)
}

// compactUnseen compacts what happens while the first worker is cut off.
func (s *Stage) compactUnseen(ctx context.Context) error {
	cut := fault.Partition{Worker: 0, From: fault.ToEtcd, Way: fault.BothWays}
	heal, err := s.inflict(ctx, cut)
	if err != nil {
		return err
	}
	// What is on its way to a connection that goes on would arrive after all.
	_, err = s.inflict(ctx, fault.Reset{Worker: 0, To: fault.ToEtcd})
	for range 2 { // the latest revision is never forgotten
		if err == nil {
			_, err = s.client.Put(ctx, s.prefix+"/unseen", "")
		}
	}
	if err == nil {
		_, err = s.inflict(ctx, fault.EtcdCompact{})
	}
	return errors.Join(err, s.heal(ctx, cut, heal))
}

// noSpace fills etcd while somebody holds a lock: the holder works on, for longer
// than a lease lives, and others are told.
func (s *Stage) noSpace(ctx context.Context) error {
	if !s.Faults {
		return s.inTurn(ctx)
	}
	if _, err := s.do(ctx, 0, Op{Resource: s.sku(), Action: "do"}); err != nil {
		return err
	}
	full := fault.EtcdNoSpace{}
	heal, err := s.inflict(ctx, full)
	if err != nil {
		return err
	}
	return errors.Join(s.whileFull(ctx), s.heal(ctx, full, heal), s.succeed(ctx, 0), s.succeed(ctx, 1))
}

func (s *Stage) whileFull(ctx context.Context) error {
	lost := s.story.listen(func(e history.Event) bool { return e.Kind == history.Lost })
	defer lost.stop()
	for began := time.Now(); time.Since(began) < TTL+TTL/2; {
		e, err := s.do(ctx, 0, Op{Resource: s.sku(), Action: "do"})
		if err != nil {
			return err
		}
		if e.Kind != history.OK && !lost.any() { // a slow machine may lose a lease
			return fmt.Errorf("%w: a holder failed: %s", errWrong, e.Error)
		}
		if err := wait(ctx, TTL/10); err != nil {
			return err
		}
	}
	e, err := s.do(ctx, 1, Op{Resource: s.workload.Resources()[1]})
	if err == nil && e.Class != classFull {
		err = fmt.Errorf("%w: a new acquisition ended as %s, %q", errWrong, e.Kind, e.Error)
	}
	return err
}

// do has a worker do an operation, and returns how that ended.
func (s *Stage) do(ctx context.Context, number int, op Op) (history.Event, error) {
	pending, err := s.Operate(number, op)
	if err != nil {
		return history.Event{}, err
	}
	return pending.Wait(ctx)
}

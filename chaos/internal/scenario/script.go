package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/clock"
)

// takeover bounds how long a script waits until another worker has the lock of a paused
// holder: its time to live, and what a busy machine takes. A lock that doesn't expire, as
// that of a connection, is not taken over.
const takeover = 3 * workload.TTL

// sku is the resource of scripts that need only one.
func (s *script) sku() string { return s.Workload().Resources()[0] }

// operateTo asks a worker for an operation in which it pauses at a point, and returns when
// it is paused. stopped is false if it didn't reach the point within a time, as when it
// waits for a lock.
func (s *script) operateTo(ctx context.Context, number int, action, point string, within time.Duration) (op *environment.Operation, stopped bool, err error) {
	t, err := s.Process(number).SetTrap(point, 0, fault.ThenPause)
	if err != nil {
		return nil, false, err
	}
	op, err = s.Operate(number, workload.Op{Resource: s.sku(), Action: action})
	if err != nil {
		return nil, false, err
	}
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err = t.Sprung(bounded)
	if errors.Is(err, fault.ErrMissed) {
		return op, false, nil
	}
	if err != nil {
		return op, false, err
	}
	s.paused(number, point)
	return op, true, nil
}

// stopAt asks a worker for operations until one has paused it at a point: the first may
// fail because the worker's lease is gone.
func (s *script) stopAt(ctx context.Context, number int, op workload.Op, within time.Duration, point string) (*environment.Operation, error) {
	for {
		t, err := s.Process(number).SetTrap(point, 0, fault.ThenPause)
		if err != nil {
			return nil, err
		}
		pending, err := s.OperateWithin(number, op, within)
		if err != nil {
			return nil, err
		}
		err = t.SprungBy(ctx, pending)
		if err == nil {
			s.paused(number, point)
			return pending, nil
		}
		if !errors.Is(err, fault.ErrMissed) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// paused records that a worker is paused at a point.
func (s *script) paused(number int, point string) {
	w := s.Process(number).Name()
	s.Trace().Record(history.Event{Kind: history.Injected, Name: "pause " + w + " at " + point, Process: w})
}

// resume resumes a worker that is paused at a point, and records it.
func (s *script) resume(number int, point string) error {
	s.Trace().Record(history.Event{Kind: history.Reverted, Name: "pause " + s.Process(number).Name() + " at " + point, Process: s.Process(number).Name()})
	return s.Process(number).Resume()
}

// ErrWrong: the code under test did not do what the script expects.
var ErrWrong = errors.New("chaos: not as the script expects")

// lock has the run itself hold the lock of a resource, as another process would, until
// unlock. Calling unlock again is a no-op.
func (s *script) lock(ctx context.Context, resource string) (unlock func(context.Context) error, err error) {
	locker, err := etcd.NewLocker(s.Observer(), &etcd.Config{Prefix: s.Prefix(), TTL: workload.TTL, Label: history.Runner})
	if err != nil {
		return nil, err
	}
	s.OnTearDown(locker.Close)
	lease, err := locker.Acquire(ctx, resource)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

// queue waits until there are so many lock keys, or until one of the operations that create
// them has ended. It fails if that takes too long.
func (s *script) queue(ctx context.Context, number int, ops ...*environment.Operation) error {
	for began := time.Now(); ; {
		keys, err := observe.LeftKeys(ctx, s.Observer(), s.Prefix())
		if err != nil || len(keys) >= number || slices.ContainsFunc(ops, (*environment.Operation).Ended) {
			return err
		}
		if time.Since(began) > workload.ProgressBound {
			return fmt.Errorf("%w: %d lock keys instead of %d after %v", ErrWrong, len(keys), number, workload.ProgressBound)
		}
		if err := clock.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// finish waits for operations to end.
func finish(ctx context.Context, ops ...*environment.Operation) error {
	for _, op := range ops {
		if _, err := op.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

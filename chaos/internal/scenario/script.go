package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// script is a running script. What several scripts share is a method of it.
type script struct{ *environment.Environment }

// steps makes the Script of a Scenario from a method of a script.
func steps(play func(*script, context.Context) error) func(context.Context, *environment.Environment) error {
	return func(ctx context.Context, env *environment.Environment) error { return play(&script{env}, ctx) }
}

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

// finish waits for operations to end.
func finish(ctx context.Context, ops ...*environment.Operation) error {
	for _, op := range ops {
		if _, err := op.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

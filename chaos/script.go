package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/fencekit/fencekit/chaos/fault"
	"github.com/fencekit/fencekit/chaos/history"
)

// takeover bounds how long a script waits until a lock whose holder stands still is
// somebody else's: its time to live, and what a busy machine takes. A lock that
// doesn't run out, as that of a connection, is not taken over.
const takeover = 3 * TTL

// sku is the resource of scripts that need only one.
func (s *Stage) sku() string { return s.workload.Resources()[0] }

// operateTo asks a worker for an operation in which it stops at a point, and
// returns when it stands still. If it didn't come to the point within a time, as
// when it waits for a lock, stopped is false.
func (s *Stage) operateTo(ctx context.Context, number int, point string, within time.Duration) (op *Pending, stopped bool, err error) {
	t, err := s.worker(number).set(command{Arm: point, Then: fault.ThenStop})
	if err != nil {
		return nil, false, err
	}
	op, err = s.Operate(number, Op{Resource: s.sku()})
	if err != nil {
		return nil, false, err
	}
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err = t.sprung(bounded)
	if errors.Is(err, fault.ErrMissed) {
		return op, false, nil
	}
	if err != nil {
		return op, false, err
	}
	s.story.tell(history.Event{Kind: history.Strikes, Name: "pause " + s.worker(number).Name() + " at " + point, Process: s.worker(number).Name()})
	return op, true, nil
}

// resume lets a worker that stands still at a point go on.
func (s *Stage) resume(number int, point string) error {
	s.story.tell(history.Event{Kind: history.Heals, Name: "pause " + s.worker(number).Name() + " at " + point, Process: s.worker(number).Name()})
	return s.worker(number).Resume()
}

// finish waits for operations that were asked for, one after another.
func finish(ctx context.Context, ops ...*Pending) error {
	for _, op := range ops {
		if _, err := op.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

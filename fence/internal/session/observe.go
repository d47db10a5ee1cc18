package session

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Observe is that of an election which asks every so often.
func Observe(ctx context.Context, e fence.Election, every time.Duration, closed <-chan struct{}) iter.Seq2[fence.Leader, error] {
	return func(yield func(fence.Leader, error) bool) {
		timer := time.NewTicker(every)
		defer timer.Stop()
		var last *fence.Leader
		for {
			now, err := e.Leader(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, fence.ErrClosed):
				yield(fence.Leader{}, err)
				return
			case (err == nil || errors.Is(err, fence.ErrNoLeader)) && (last == nil || *last != now):
				last = &now
				if !yield(now, err) {
					return
				}
			}
			select {
			case <-timer.C:
			case <-closed:
			case <-ctx.Done():
				return
			}
		}
	}
}

package clock

import (
	"context"
	"time"
)

// Sleep waits for the duration d and returns nil; if ctx ends first, it returns ctx's
// cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

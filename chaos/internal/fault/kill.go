package fault

import (
	"context"
	"fmt"
)

// Kill ends a worker process by SIGKILL, at any point. Reverting starts a new one.
type Kill struct{ Worker int }

func (f Kill) String() string { return fmt.Sprintf("kill w%d", f.Worker) }

// Inject implements Fault.
func (f Kill) Inject(_ context.Context, site Site) (func(context.Context) error, error) {
	w := site.Worker(f.Worker)
	if err := w.Kill(); err != nil {
		return nil, err
	}
	return w.Start, nil
}

// KillAt ends a worker process by SIGKILL at a point of an operation. Reverting starts a
// new one.
type KillAt struct {
	Worker int
	Point  string
}

func (f KillAt) String() string { return fmt.Sprintf("kill w%d at %s", f.Worker, f.Point) }

// Inject implements Fault. It waits until an operation reaches the point.
func (f KillAt) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	w := site.Worker(f.Worker)
	if err := w.Arm(ctx, f.Point, ThenKill); err != nil {
		return nil, err
	}
	return w.Start, nil
}

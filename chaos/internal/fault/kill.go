package fault

import (
	"context"
	"fmt"
)

// Kill ends a worker process by SIGKILL, wherever it is. Healing starts it anew.
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

// DieAt has a worker process end by SIGKILL at a point of an operation. Healing
// starts it anew.
type DieAt struct {
	Worker int
	Point  string
}

func (f DieAt) String() string { return fmt.Sprintf("kill w%d at %s", f.Worker, f.Point) }

// Inject implements Fault. It waits until an operation comes to the point.
func (f DieAt) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	w := site.Worker(f.Worker)
	if err := w.Arm(ctx, f.Point, ThenDie); err != nil {
		return nil, err
	}
	return w.Start, nil
}

package fault

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Pause stops a worker process by SIGSTOP, at any point.
type Pause struct{ Worker int }

func (f Pause) String() string { return fmt.Sprintf("pause w%d", f.Worker) }

// Inject implements Fault.
func (f Pause) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	w := site.Worker(f.Worker)
	if err := w.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	if err := w.AwaitStopped(ctx); err != nil {
		return nil, errors.Join(err, w.Resume())
	}
	return resume(w), nil
}

// PauseAt stops a worker process by SIGSTOP at a point of an operation.
type PauseAt struct {
	Worker int
	Point  string
}

func (f PauseAt) String() string { return fmt.Sprintf("pause w%d at %s", f.Worker, f.Point) }

// Inject implements Fault. It waits until an operation reaches the point.
func (f PauseAt) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	w := site.Worker(f.Worker)
	if err := w.Arm(ctx, f.Point, ThenPause); err != nil {
		return nil, err
	}
	return resume(w), nil
}

func resume(w Worker) func(context.Context) error {
	return func(context.Context) error { return w.Resume() }
}

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

// StopTheWorld stops all goroutines of a worker process by its Go runtime, as the garbage
// collector does.
type StopTheWorld struct{ Worker int }

func (f StopTheWorld) String() string { return fmt.Sprintf("stop-the-world w%d", f.Worker) }

// Inject implements Fault.
func (f StopTheWorld) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	return site.Worker(f.Worker).StopTheWorld(ctx)
}

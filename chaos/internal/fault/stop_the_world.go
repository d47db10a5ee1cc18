package fault

import (
	"context"
	"fmt"
)

// StopTheWorld stops all goroutines of a worker process by its Go runtime, as the garbage
// collector does.
type StopTheWorld struct{ Worker int }

func (f StopTheWorld) String() string { return fmt.Sprintf("stop-the-world w%d", f.Worker) }

// Inject implements Fault.
func (f StopTheWorld) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	return site.Worker(f.Worker).StopTheWorld(ctx)
}

package fault

import (
	"context"
	"fmt"
	"time"
)

// StopTheWorld has the Go runtime of a worker process stop all its goroutines for a
// time, as a garbage collector does.
type StopTheWorld struct {
	Worker int
	Length time.Duration
}

func (f StopTheWorld) String() string {
	return fmt.Sprintf("stop-the-world w%d for %v", f.Worker, f.Length)
}

// Strike implements Fault. It ends by itself.
func (f StopTheWorld) Strike(ctx context.Context, site Site) (func(context.Context) error, error) {
	return nil, site.Worker(f.Worker).StopTheWorld(ctx, f.Length)
}

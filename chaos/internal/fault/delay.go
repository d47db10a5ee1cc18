package fault

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/internal/netfault"
)

// Delay delays everything between a worker and a server, in both directions, by Latency
// plus or minus up to Jitter.
type Delay struct {
	Worker          int
	To              Server
	Latency, Jitter time.Duration
}

func (f Delay) String() string {
	return fmt.Sprintf("delay w%d to %s by %v ± %v", f.Worker, f.To, f.Latency, f.Jitter)
}

// Inject implements Fault.
func (f Delay) Inject(_ context.Context, site Site) (func(context.Context) error, error) {
	return f.To.inject(site.Worker(f.Worker), func(l *netfault.Link) (reverts []func()) {
		for _, d := range BothWays.directions() {
			reverts = append(reverts, l.Delay(d, f.Latency, f.Jitter))
		}
		return reverts
	}), nil
}

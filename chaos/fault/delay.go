package fault

import (
	"context"
	"fmt"
	"time"
)

// Delay has everything between a worker and a server arrive later, in both
// directions, by Latency and up to Jitter more or less.
type Delay struct {
	Worker          int
	To              Server
	Latency, Jitter time.Duration
}

func (f Delay) String() string {
	return fmt.Sprintf("delay w%d to %s by %v ± %v", f.Worker, f.To, f.Latency, f.Jitter)
}

// Strike implements Fault.
func (f Delay) Strike(_ context.Context, site Site) (func(context.Context) error, error) {
	w := site.Worker(f.Worker)
	f.set(w, f.Latency, f.Jitter)
	return func(context.Context) error { f.set(w, 0, 0); return nil }, nil
}

func (f Delay) set(w Worker, latency, jitter time.Duration) {
	for _, l := range f.To.links(w) {
		for _, d := range BothWays.directions() {
			l.Delay(d, latency, jitter)
		}
	}
}

package fault

import (
	"context"
	"fmt"
)

// Reset resets a worker's present connections to a server.
type Reset struct {
	Worker int
	To     Server
}

func (f Reset) String() string { return fmt.Sprintf("reset w%d to %s", f.Worker, f.To) }

// Inject implements Fault.
func (f Reset) Inject(_ context.Context, site Site) (func(context.Context) error, error) {
	for _, l := range f.To.links(site.Worker(f.Worker)) {
		l.Reset()
	}
	return nil, nil
}

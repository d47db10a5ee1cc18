package fault

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/internal/netfault"
)

// Partition silences the links between a worker and a server. What is sent meanwhile
// arrives when the fault is reverted, as TCP sends it again.
type Partition struct {
	Worker int
	From   Server
	Way    Way
}

func (f Partition) String() string {
	return fmt.Sprintf("partition w%d from %s, %s", f.Worker, f.From, f.Way)
}

// Inject implements Fault.
func (f Partition) Inject(_ context.Context, site Site) (func(context.Context) error, error) {
	return f.From.inject(site.Worker(f.Worker), func(l *netfault.Link) (reverts []func()) {
		for _, d := range f.Way.directions() {
			reverts = append(reverts, l.Cut(d))
		}
		return reverts
	}), nil
}

package fault

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/internal/netfault"
)

// Partition silences the links between a worker and a server. What was sent
// meanwhile arrives when it is healed, as TCP has it.
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
	return f.From.strike(site.Worker(f.Worker), func(l *netfault.Link) (reverts []func()) {
		for _, d := range f.Way.directions() {
			reverts = append(reverts, l.Cut(d))
		}
		return reverts
	}), nil
}

package fault

import (
	"context"
	"fmt"
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

// Strike implements Fault.
func (f Partition) Strike(_ context.Context, site Site) (func(context.Context) error, error) {
	links := f.From.links(site.Worker(f.Worker))
	for _, l := range links {
		for _, d := range f.Way.directions() {
			l.Cut(d)
		}
	}
	return func(context.Context) error {
		for _, l := range links {
			for _, d := range f.Way.directions() {
				l.Heal(d)
			}
		}
		return nil
	}, nil
}

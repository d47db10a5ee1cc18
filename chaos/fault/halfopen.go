package fault

import (
	"context"
	"fmt"
)

// HalfOpen has the far end of a worker's present connections to a server vanish
// without a word, as when its machine was switched off. New connections work.
type HalfOpen struct {
	Worker int
	To     Server
}

func (f HalfOpen) String() string { return fmt.Sprintf("half-open w%d to %s", f.Worker, f.To) }

// Strike implements Fault. Healing resets those connections.
func (f HalfOpen) Strike(_ context.Context, site Site) (func(context.Context) error, error) {
	links := f.To.links(site.Worker(f.Worker))
	for _, l := range links {
		l.HalfOpen()
	}
	return func(context.Context) error {
		for _, l := range links {
			for _, d := range BothWays.directions() {
				l.Heal(d)
			}
		}
		return nil
	}, nil
}

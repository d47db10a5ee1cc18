package fault

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/internal/netfault"
)

// HalfOpen has the far end of a worker's present connections to a server vanish
// without a word, as when its machine was switched off. New connections work.
type HalfOpen struct {
	Worker int
	To     Server
}

func (f HalfOpen) String() string { return fmt.Sprintf("half-open w%d to %s", f.Worker, f.To) }

// Inject implements Fault. Healing resets those connections.
func (f HalfOpen) Inject(_ context.Context, site Site) (func(context.Context) error, error) {
	return f.To.strike(site.Worker(f.Worker), func(l *netfault.Link) []func() { return []func(){l.HalfOpen()} }), nil
}

package fault

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/internal/netfault"
)

// HalfOpen makes a worker's present connections to a server half-open, as when the
// server's machine was switched off: nothing arrives, and neither end sees an error. New
// connections work.
type HalfOpen struct {
	Worker int
	To     Server
}

func (f HalfOpen) String() string { return fmt.Sprintf("half-open w%d to %s", f.Worker, f.To) }

// Inject implements Fault. Reverting resets those connections.
func (f HalfOpen) Inject(_ context.Context, site Site) (func(context.Context) error, error) {
	return f.To.inject(site.Worker(f.Worker), func(l *netfault.Link) []func() { return []func(){l.HalfOpen()} }), nil
}

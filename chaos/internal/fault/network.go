package fault

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/internal/netfault"
)

// Server names what a worker is linked to.
type Server string

// What a worker is linked to.
const (
	ToEtcd     Server = "etcd"
	ToPostgres Server = "postgres"
	ToBoth     Server = "both"
)

// links are a worker's links to a server.
func (s Server) links(w Worker) (links []*netfault.Link) {
	if s != ToPostgres {
		links = append(links, w.ToEtcd()...)
	}
	if s != ToEtcd {
		links = append(links, w.ToPostgres())
	}
	return links
}

// inject does something to each of these links, and returns what reverts it.
func (s Server) inject(w Worker, do func(l *netfault.Link) (reverts []func())) func(context.Context) error {
	var reverts []func()
	for _, l := range s.links(w) {
		reverts = append(reverts, do(l)...)
	}
	return func(context.Context) error {
		for _, revert := range reverts {
			revert()
		}
		return nil
	}
}

// Way is a direction, or both.
type Way string

// The ways.
const (
	Requests Way = "requests" // from the worker to the server
	Answers  Way = "answers"  // from the server to the worker
	BothWays Way = "both ways"
)

func (w Way) directions() []netfault.Direction {
	switch w {
	case Requests:
		return []netfault.Direction{netfault.ToServer}
	case Answers:
		return []netfault.Direction{netfault.ToClient}
	}
	return []netfault.Direction{netfault.ToServer, netfault.ToClient}
}

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

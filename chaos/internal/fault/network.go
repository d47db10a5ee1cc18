package fault

import (
	"context"

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

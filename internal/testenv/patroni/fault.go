package patroni

import (
	"context"
	"errors"
	"os"
)

// Fault takes the primary away, and brings it back.
type Fault struct {
	// Name is what has happened to the primary, as "killed".
	Name string
	// Inject does it to the primary. After it, another node becomes the primary.
	Inject func(ctx context.Context, c *Cluster, primary *Node) error
	// Revert lets the old primary come back, as a standby.
	Revert func(ctx context.Context, old *Node) error
}

// The ways in which a primary is lost. Only SwitchedOver lets it send the rest of its log first.
var (
	Killed = Fault{
		"killed",
		func(_ context.Context, _ *Cluster, primary *Node) error { return primary.Kill() },
		reset,
	}
	Paused = Fault{
		"paused",
		func(_ context.Context, _ *Cluster, primary *Node) error { return primary.Pause() },
		reset,
	}
	CutOff = Fault{
		"cut off",
		func(_ context.Context, _ *Cluster, primary *Node) error {
			primary.CutOff()
			return nil
		},
		reset,
	}
	SwitchedOver = Fault{
		"switched over",
		func(ctx context.Context, c *Cluster, _ *Node) error { return c.Switchover(ctx, nil) },
		func(context.Context, *Node) error { return nil },
	}
)

// Faults are all of them.
var Faults = []Fault{Killed, Paused, CutOff, SwitchedOver}

// reset starts a node anew, as an operator does, without its cuts and with a copy of the new
// primary's data. Patroni 3.0.2 that runs on after a pause may take the leader key back from its
// successor (patroni/patroni#2689); after a cut it may remove the data of a Postgres that it hasn't
// stopped yet; and it doesn't always rewind data that have more than the new primary's, so that
// the node never follows.
func reset(ctx context.Context, old *Node) error {
	err := errors.Join(old.Kill(), os.RemoveAll(old.data()))
	old.Reconnect()
	return errors.Join(err, old.Restart(ctx))
}

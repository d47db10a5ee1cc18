package fence

import (
	"context"
	"errors"
	"iter"
)

// ErrNoLeader: the election has no leader at the moment.
var ErrNoLeader = errors.New("fence: election has no leader")

// Leader is the leader of an election, and what it proclaims. The zero Leader stands for none.
type Leader struct {
	Grant Grant  // the leader's, as the lock service names it
	Value string // "" for a leader that got the lock by Acquire instead of Campaign
}

// Election elects one leader at a time among the candidates, in order of arrival. It is the queue of the resource of the
// same name: the leader holds the lock, and the lock's holder leads. All methods may be called from several goroutines;
// an Election needs no closing.
type Election interface {
	// Campaign waits until it is elected, and then proclaims value. It is Acquire otherwise: with the same errors, and
	// in one queue with it.
	Campaign(ctx context.Context, value string) (Leadership, error)

	// Leader returns the present leader, or ErrNoLeader. By the time it returns another one may lead: only a fence can
	// decide that.
	Leader(ctx context.Context) (Leader, error)

	// Observe yields what Leader would return, now and whenever it changes: the leader and what it proclaims, or
	// ErrNoLeader. It may skip intermediate changes, but always yields the latest state. It ends when ctx does. Each
	// iteration begins with the present leader.
	Observe(ctx context.Context) iter.Seq2[Leader, error]
}

// Leadership is the lease of an elected leader. What a leader writes under its grant (Guard.UnderGrant or
// Guard.UnderLease of package guard) is rejected once a later leader has claimed. It excludes other leaders, and nobody
// who writes the same rows under another resource. All methods may be called from several goroutines.
type Leadership interface {
	Lease

	// Proclaim replaces the value. If the leadership is over its error is the cause of Context.
	Proclaim(ctx context.Context, value string) error

	// Resign gives the leadership up. It is Release.
	Resign(ctx context.Context) error
}

package fence

import (
	"context"
	"errors"
	"iter"
)

// ErrNoLeader: the election has no leader.
var ErrNoLeader = errors.New("fence: election has no leader")

// Leader is the leader of an election and the value that it proclaims; zero for none.
type Leader struct {
	Grant Grant
	Value string // "" after Acquire instead of Campaign
}

// Election elects one leader at a time, in order of arrival. It is the queue of the resource of the same name,
// whose holder leads. It is safe for concurrent use and needs no closing.
type Election interface {
	// Campaign waits until it is elected, in one queue with Acquire and with its errors, and then proclaims value.
	Campaign(ctx context.Context, value string) (Leadership, error)

	// Leader returns the present leader, or ErrNoLeader. Another one may lead by the time it returns.
	Leader(ctx context.Context) (Leader, error)

	// Observe yields what Leader would return, at first and whenever that changes, until ctx ends. It may skip
	// intermediate states, but always yields the latest one.
	Observe(ctx context.Context) iter.Seq2[Leader, error]
}

// Leadership is the lease of an elected leader. What it writes under its grant (Guard.UnderGrant or
// Guard.UnderLease of package guard) is rejected once a later leader has claimed. It excludes other leaders, but
// nobody who writes the same rows under another resource. It is safe for concurrent use.
type Leadership interface {
	Lease

	// Proclaim replaces the value. Once the leadership is over, it returns the cause of Context.
	Proclaim(ctx context.Context, value string) error

	// Resign is Release.
	Resign(ctx context.Context) error
}

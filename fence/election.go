package fence

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"
)

// ErrNoLeader: the election has no leader.
var ErrNoLeader = errors.New("fence: election has no leader")

// Leader is the leader of an election and the value that it proclaims; zero for none.
type Leader struct {
	Grant Grant
	Value string // "" after Acquire instead of Campaign
}

// MaxValueLen limits what a leader proclaims, in bytes.
const MaxValueLen = 4096

// ValidateValue returns ErrInvalid if a leader can't proclaim value: it has more than MaxValueLen bytes, a zero byte, or
// is not valid UTF-8.
func ValidateValue(value string) error {
	if len(value) > MaxValueLen || !utf8.ValidString(value) || strings.Contains(value, "\x00") {
		return fmt.Errorf("%w: the value to proclaim has %d bytes, want at most %d of valid UTF-8 without a zero byte", ErrInvalid, len(value), MaxValueLen)
	}
	return nil
}

// Elector is a Locker that has elections.
type Elector interface {
	// Election returns the election of a name; a name that can't be a resource is an *InvalidGrantError. It makes no
	// request.
	Election(name string) (Election, error)
}

// Election elects one leader at a time, in the order in which the Locker grants: the holder of the resource of the
// same name leads. It is safe for concurrent use and needs no closing.
type Election interface {
	// Campaign waits until it is elected, in one queue with Acquire and with its errors, and then proclaims value: see
	// ValidateValue.
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

package memory

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// ErrReplyLost is the error that a storage.InDoubtError caused by a Fate wraps.
var ErrReplyLost = errors.New("memory: reply to COMMIT was lost")

// Fate is what happens to one COMMIT.
type Fate int

// The fates. With each but Normal, Commit returns a *storage.InDoubtError, unless the seal
// was rejected and the reply with the rejection arrived. A read-only transaction is never in
// doubt: Commit then returns an error that wraps ErrReplyLost and says that it is retryable.
const (
	Normal      Fate = iota
	ReplyLost        // it takes effect; the reply is lost
	RequestLost      // it never arrives
	Late             // it arrives at the next Store.Deliver
)

// Faults are called by the Store at its steps, with no lock held, by the
// goroutine that takes the step; they may block. A nil function is no fault. An
// error that one returns is what the step fails with.
type Faults struct {
	// Claim is called before a claim, which its error prevents.
	Claim func(grant fence.Grant) error
	// ClaimReply is called after a claim has moved the fence.
	ClaimReply func(grant fence.Grant) error
	// Begin is called before a transaction begins.
	Begin func(claims []storage.Claim) error
	// Commit is called before a COMMIT and decides its fate.
	Commit func(d storage.InDoubt) Fate
	// Resolve is called before a transaction is resolved.
	Resolve func(d storage.InDoubt) error
}

// before runs at the beginning of every step.
func before[T any](ctx context.Context, hook func(T) error, arg T) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if hook == nil {
		return nil
	}
	return hook(arg)
}

// SetFaults replaces the faults. The zero Faults are none.
func (s *Store) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

func (s *Store) currentFaults() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// Deliver lets the COMMITs arrive that are late, in the order in which they were sent. It
// returns an error for each: nil, or the rejection, which only Deliver's caller sees.
func (s *Store) Deliver() []error {
	s.mu.Lock()
	late := s.late
	s.late = nil
	s.mu.Unlock()
	var errs []error
	for _, t := range late {
		_, err := s.seal(t, t.moves)
		errs = append(errs, err)
	}
	return errs
}

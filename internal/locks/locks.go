// Package locks is what tools see of a lock service, whichever it is: queues and evictions.
package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Service shows the locks of a lock service, and takes them away.
type Service interface {
	// Locks reads all queues.
	Locks(context.Context) (Locks, error)

	// Evict takes a resource from its holder if that has the expected token, and keeps a record for EvictionKept in the
	// same transaction. The error is a *NotHolderError if another or none holds the resource; fence.ErrInvalid for a
	// reason that ValidateReason rejects. After any other error the eviction may have taken effect.
	Evict(ctx context.Context, resource string, expected fence.Token, reason, by string) (Eviction, error)

	// Evictions reads the records of evictions, by time.
	Evictions(context.Context) ([]Eviction, error)
}

// Locks are all queues at one moment.
type Locks struct {
	Epoch  int64
	Queues []Lock
}

// Queue returns the queue of a resource.
func (l Locks) Queue(resource string) []Acquisition {
	for _, lock := range l.Queues {
		if lock.Resource == resource {
			return lock.Queue
		}
	}
	return nil
}

// Lock is the queue of a resource.
type Lock struct {
	Resource string
	Queue    []Acquisition // the holder, then the waiters in order; empty if the resource is free
}

// Acquisition is a place in the queue of a resource.
type Acquisition struct {
	// Grant is the holder's, or the one that a waiter will get; Token and Epoch are zero where that isn't known yet, Epoch
	// and Holder if no Locker has made the acquisition.
	Grant fence.Grant
	// Queued is when the acquisition began, by its process's clock; zero if that isn't known.
	Queued time.Time
	// LeaseLeft is the time until the place is lost unless its session is renewed, in whole seconds.
	LeaseLeft time.Duration

	Key     string // identifies the acquisition, with its token
	Session int64
}

// EvictionKept is how long the record of an eviction is kept.
const EvictionKept = 90 * 24 * time.Hour

// Eviction is the record of an eviction.
type Eviction struct {
	Grant  fence.Grant
	Reason string
	By     string
	At     time.Time
}

const maxReason = 1000

// ValidateReason returns fence.ErrInvalid unless the reason has 1 to 1000 bytes, and by at most 1000.
func ValidateReason(reason, by string) error {
	if reason == "" || len(reason) > maxReason || len(by) > maxReason {
		return fmt.Errorf("%w: an eviction needs a reason of 1 to %d bytes", fence.ErrInvalid, maxReason)
	}
	return nil
}

// NotHolderError says that the token to evict is not the holder's. Nothing was changed.
type NotHolderError struct {
	Resource string
	Expected fence.Token
	Holder   fence.Grant // zero if there is no holder
}

func (e *NotHolderError) Error() string {
	if e.Holder.Token == 0 {
		return fmt.Sprintf("fence: nothing was evicted from %s: it has no holder, and token %d was expected", e.Resource, e.Expected)
	}
	return fmt.Sprintf("fence: nothing was evicted from %s: %s holds it with token %d, and %d was expected",
		e.Resource, e.Holder.Holder, e.Holder.Token, e.Expected)
}

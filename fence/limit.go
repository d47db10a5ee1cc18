package fence

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
)

// Limit is a semaphore: a name that at most so many hold at a time, each under a lease and grant of its own, whose
// resource is NAME/1, NAME/2 and so on. What a holder writes under its grant is rejected once another has that place.
// It is safe for concurrent use and needs no closing.
type Limit struct {
	locker Locker
	name   string
	places []string
}

// MaxLimit bounds the holders of a Limit, since a call that waits does so for each place.
const MaxLimit = 100

// NewLimit returns a Limit of 1 to MaxLimit holders, with the same number in every process. It makes no request. A
// number out of bounds is ErrInvalid, and a name that leaves no room in a resource's an *InvalidGrantError.
func NewLimit(l Locker, name string, holders int) (*Limit, error) {
	if holders < 1 || holders > MaxLimit {
		return nil, fmt.Errorf("%w: a limit of %d holders, want between 1 and %d", ErrInvalid, holders, MaxLimit)
	}
	limit := &Limit{locker: l, name: name}
	for n := range holders {
		place := fmt.Sprintf("%s/%d", name, n+1)
		if err := ValidateResource(place); err != nil {
			return nil, err
		}
		limit.places = append(limit.places, place)
	}
	return limit, nil
}

// TryAcquire returns a lease of any free place, or a *LockedError, after one request for each place that is taken.
// Other errors are those of the Locker.
func (l *Limit) TryAcquire(ctx context.Context) (Lease, error) {
	for _, n := range rand.Perm(len(l.places)) {
		lease, err := l.locker.TryAcquire(ctx, l.places[n])
		if !errors.Is(err, ErrLocked) || ctx.Err() != nil {
			return lease, err
		}
	}
	return nil, &LockedError{Resource: l.name}
}

// Acquire waits for a place until ctx ends. It waits for all of them at once, so the Locker's order of arrival is that
// of the Limit as long as no holder is lost. Errors are those of the Locker.
func (l *Limit) Acquire(ctx context.Context) (Lease, error) {
	lease, err := l.TryAcquire(ctx)
	if !errors.Is(err, ErrLocked) || ctx.Err() != nil {
		return lease, err
	}
	waits, stop := context.WithCancel(ctx)
	defer stop()
	type result struct {
		lease Lease
		err   error
	}
	results := make(chan result, len(l.places))
	for _, place := range l.places {
		go func() {
			lease, err := l.locker.Acquire(waits, place)
			results <- result{lease, err}
		}()
	}
	var first result
	for range l.places {
		r := <-results
		switch {
		case first == (result{}):
			first = r
			stop()
		case r.err == nil && first.err == nil:
			_ = r.lease.Release(waits) // in the background: two came free at once
		case r.err == nil:
			first = r
		}
	}
	return first.lease, first.err
}

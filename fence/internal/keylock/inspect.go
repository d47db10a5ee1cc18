package keylock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/locks"
)

// Lister is a Service that shows its keys to tools.
type Lister interface {
	Service
	// List returns the keys' holders, and behind them those that wait in a Queue, in order.
	List(ctx context.Context) ([]Place, error)
}

// Place is that of a holder, or of one that waits.
type Place struct {
	Resource, Process, Holder string

	Token fence.Token
	Left  time.Duration // of the key's time to live, as far as that is known
}

// Locks implements the service of package locks, which fencectl shows.
func (l *Locker) Locks(ctx context.Context) (locks.Locks, error) {
	places, err := l.list(ctx)
	all := locks.Locks{Revision: int64(fence.MaxToken), Epoch: l.cfg.Epoch} // which no fence is ahead of: a count may be lost
	at := map[string]int{}
	for _, p := range places {
		i, known := at[p.Resource]
		if !known {
			i, at[p.Resource] = len(all.Queues), len(all.Queues)
			all.Queues = append(all.Queues, locks.Lock{Resource: p.Resource})
		}
		grant := fence.Grant{Resource: p.Resource, Epoch: l.cfg.Epoch, Token: p.Token, Holder: p.Holder}
		all.Queues[i].Queue = append(all.Queues[i].Queue, locks.Acquisition{Grant: grant, LeaseLeft: p.Left, Key: p.Holder})
	}
	return all, err
}

func (l *Locker) list(ctx context.Context) ([]Place, error) {
	lister, can := l.service.(Lister)
	if !can {
		return nil, fmt.Errorf("%w: %s can't list its locks", fence.ErrInvalid, l.cfg.Name)
	}
	places, err := within(ctx, l, lister.List)
	return places, l.unavailable("list", err)
}

// Evict releases the key of a resource for its holder, and keeps no record.
func (l *Locker) Evict(ctx context.Context, resource string, expected fence.Token, reason, by string) (locks.Eviction, error) {
	if err := locks.ValidateReason(reason, by); err != nil {
		return locks.Eviction{}, err
	}
	places, err := l.list(ctx)
	if err != nil {
		return locks.Eviction{}, err
	}
	for _, p := range places {
		if p.Resource != resource {
			continue
		}
		grant := fence.Grant{Resource: resource, Epoch: l.cfg.Epoch, Token: p.Token, Holder: p.Holder}
		if p.Token != expected {
			return locks.Eviction{}, &locks.NotHolderError{Resource: resource, Expected: expected, Holder: grant}
		}
		_, err := within(ctx, l, func(ctx context.Context) (none struct{}, err error) {
			return none, l.service.Release(ctx, Request{Resource: resource, Process: p.Process, Holder: p.Holder})
		})
		return locks.Eviction{Grant: grant, Reason: reason, By: by, At: time.Now()}, l.unavailable("evict "+resource, err)
	}
	return locks.Eviction{}, &locks.NotHolderError{Resource: resource, Expected: expected}
}

// Evictions fails: the service keeps no record.
func (l *Locker) Evictions(context.Context) ([]locks.Eviction, error) {
	return nil, errors.New(l.cfg.Name + " keeps no record of evictions")
}

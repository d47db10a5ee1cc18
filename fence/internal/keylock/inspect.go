package keylock

import (
	"context"
	"errors"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/locks"
)

func (l *Locker) grantOf(o Owner) fence.Grant {
	return fence.Grant{Resource: o.Resource, Epoch: l.cfg.Epoch, Token: o.Token, Holder: o.Holder}
}

// Locks implements the service of package locks, which fencectl shows.
func (l *Locker) Locks(ctx context.Context) (locks.Locks, error) {
	owners, err := within(ctx, l, l.service.List)
	all := locks.Locks{Epoch: l.cfg.Epoch}
	at := map[string]int{}
	for _, o := range owners {
		i, known := at[o.Resource]
		if !known {
			i, at[o.Resource] = len(all.Queues), len(all.Queues)
			all.Queues = append(all.Queues, locks.Lock{Resource: o.Resource})
		}
		all.Queues[i].Queue = append(all.Queues[i].Queue, locks.Acquisition{Grant: l.grantOf(o), LeaseLeft: o.Left, Key: o.Holder})
	}
	return all, l.unavailable("list", err)
}

// Evict releases the key of a resource for its holder, and keeps no record.
func (l *Locker) Evict(ctx context.Context, resource string, expected fence.Token, reason, by string) (done locks.Eviction, err error) {
	if err := locks.ValidateReason(reason, by); err != nil {
		return done, err
	}
	owner, err := within(ctx, l, func(ctx context.Context) (Owner, error) { return l.service.Look(ctx, resource) })
	switch {
	case err != nil:
		return done, l.unavailable("evict "+resource, err)
	case owner.Holder == "":
		return done, &locks.NotHolderError{Resource: resource, Expected: expected}
	case owner.Token != expected:
		return done, &locks.NotHolderError{Resource: resource, Expected: expected, Holder: l.grantOf(owner)}
	}
	_, err = within(ctx, l, func(ctx context.Context) (none struct{}, err error) {
		return none, l.service.Release(ctx, Request{Resource: resource, Process: owner.Process, Holder: owner.Holder})
	})
	return locks.Eviction{Grant: l.grantOf(owner), Reason: reason, By: by, At: time.Now()}, l.unavailable("evict "+resource, err)
}

// Evictions fails: the service keeps no record.
func (l *Locker) Evictions(context.Context) ([]locks.Eviction, error) {
	return nil, errors.New(l.cfg.Name + " keeps no record of evictions")
}

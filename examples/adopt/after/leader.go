// Package after has the leader and the worker of package before, converted: see docs/adopt.md.
package after

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// ErrNotLeader says that another process leads.
var ErrNotLeader = errors.New("not the leader")

// Leader is a candidate, and the leader once Lead has returned nil.
type Leader struct {
	Guard *fencekit.Client
	Name  string
	Lease fence.Lease
}

// Lead takes the lock, which renews itself. A leader may call it again.
func (l *Leader) Lead(ctx context.Context) error {
	if l.Lease != nil && l.Lease.Err() == nil {
		return nil
	}
	lease, err := l.Guard.Locker.TryAcquire(ctx, l.Name)
	if errors.Is(err, fence.ErrLocked) {
		return ErrNotLeader
	}
	l.Lease = lease
	return err
}

// Write runs fn in a transaction that commits if this process still leads.
func (l *Leader) Write(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return guard.Do(ctx, l.Guard.UnderLease(l.Lease), l.Name, fn)
}

// Resign lets another process lead at once.
func (l *Leader) Resign(ctx context.Context) error {
	return l.Lease.Release(ctx)
}

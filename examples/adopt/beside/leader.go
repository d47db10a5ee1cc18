// Package beside has a leader that leads in both ways, and a queue for workers that claim in both, for the time in which
// processes with package before still run, or may have to run again: see docs/adopt.md.
package beside

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/examples/adopt/after"
	"github.com/fencekit/fencekit/examples/adopt/before"
)

// Leader has the lock, which excludes its like, and the row, which excludes old processes.
type Leader struct {
	After after.Leader
	Row   before.Leader
}

// Lead takes the lock and then the row, or renews it. Until an old process gives up the row it has the lock alone, and
// returns before.ErrNotLeader.
func (l *Leader) Lead(ctx context.Context) error {
	if err := l.After.Lead(ctx); err != nil {
		return err
	}
	l.Row.Holder = l.After.Lease.Grant().Holder // no other term has this name, so each has an epoch of its own
	return l.Row.Lead(ctx)
}

// Write keeps old processes from taking the row before COMMIT.
func (l *Leader) Write(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return l.After.Write(ctx, func(ctx context.Context, tx pgx.Tx) error {
		row, err := tx.Exec(ctx, "select from leader_lease where name = $1 and holder = $2 for share", l.Row.Name, l.Row.Holder)
		if err == nil && row.RowsAffected() == 0 {
			return before.ErrNotLeader
		}
		if err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// Resign leaves the row, so that its epochs don't begin again.
func (l *Leader) Resign(ctx context.Context) error {
	_, err := l.Row.Pool.Exec(ctx, "update leader_lease set expires_at = '-infinity' where name = $1 and holder = $2", l.Row.Name, l.Row.Holder)
	return errors.Join(err, l.After.Resign(ctx))
}

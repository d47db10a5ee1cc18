// Package before has a leader by a row with an epoch, and a worker by claimed_by, as they are written by hand. Each has
// four bugs: see docs/adopt.md.
package before

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Table is the row's.
const Table = `create table leader_lease (name text primary key, holder text not null, epoch bigint not null, expires_at timestamptz not null)`

// ErrNotLeader says that another process leads.
var ErrNotLeader = errors.New("not the leader")

// Leader is a candidate, and the leader once Lead has returned nil.
type Leader struct {
	Pool   *pgxpool.Pool
	Name   string
	Holder string // the worker's name
	TTL    time.Duration
	epoch  int64
}

// Lead takes the row or renews it. A leader calls it again before TTL is over.
func (l *Leader) Lead(ctx context.Context) error {
	err := l.Pool.QueryRow(ctx, `insert into leader_lease as l values ($1, $2, 1, now() + $3)
		on conflict (name) do update set holder = $2, expires_at = excluded.expires_at,
			epoch = case when l.holder = $2 then l.epoch else l.epoch + 1 end
		where l.holder = $2 or l.expires_at < now() returning epoch`, l.Name, l.Holder, l.TTL).Scan(&l.epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotLeader
	}
	return err
}

// Write runs fn in a transaction that commits if this process still leads.
func (l *Leader) Write(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, l.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		row, err := tx.Exec(ctx, "select from leader_lease where name = $1 and epoch = $2 and expires_at > now()", l.Name, l.epoch)
		if err == nil && row.RowsAffected() == 0 {
			return ErrNotLeader
		}
		return err
	})
}

// Resign lets another process lead at once.
func (l *Leader) Resign(ctx context.Context) error {
	_, err := l.Pool.Exec(ctx, "delete from leader_lease where name = $1 and epoch = $2", l.Name, l.epoch)
	return err
}

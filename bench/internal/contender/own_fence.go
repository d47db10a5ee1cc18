package contender

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/bench/internal/load"
)

const (
	createOwnFence = `create table own_fence (resource text primary key, token bigint not null, seq bigint not null) with (fillfactor = 50);
create table own_history (resource text, seq bigint, token bigint not null, at timestamptz not null default now(), primary key (resource, seq))`
	raiseOwnFence = `insert into own_fence values ($1, 1, 0) on conflict do nothing`
	// A token that is not the resource's moves nothing, and divides by zero.
	moveOwnFence = `with moved as (update own_fence set seq = seq + 1 where resource = $1 and token = $2 returning seq, token),
entry as (insert into own_history (resource, seq, token) select $1, seq, token from moved returning seq)
select 1 / count(*) from entry`
)

// OwnFence is the operation in a transaction that compares a token, counts the move and records it
// in two tables of its own, all in one write with COMMIT, and does nothing else that Fencekit does.
// So it bounds the rate of any guarded transaction that keeps its fence and its history in tables.
func OwnFence(ctx context.Context, t *load.Target) (*load.Work, error) {
	pool, err := newPool(ctx, t)
	if err != nil {
		return nil, err
	}
	for g := range t.Goroutines {
		for _, resource := range t.Item(g).Resources {
			if _, err := pool.Exec(ctx, raiseOwnFence, resource); err != nil {
				pool.Close()
				return nil, err
			}
		}
	}
	return &load.Work{
		Do:    func(ctx context.Context, g int) error { return sellUnderOwnFence(ctx, pool, t.Item(g)) },
		Close: func(context.Context) error { pool.Close(); return nil },
	}, nil
}

func sellUnderOwnFence(ctx context.Context, pool *pgxpool.Pool, item load.Item) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if err := sell(ctx, tx, readQty, item.SKUs); err != nil {
			return errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
		}
		end := &pgx.Batch{}
		for _, resource := range item.Resources {
			end.Queue(moveOwnFence, resource, 1)
		}
		end.Queue("commit")
		return conn.SendBatch(ctx, end).Close()
	})
}

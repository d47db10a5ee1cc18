package wire

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const patience = 3 * time.Second

// Acquire is pool.Acquire, but doesn't leave all its time to the ping of a connection that the network has forgotten:
// after 3 s, or a third of ctx's time, it resets the pool, since the other idle ones may be as old, and takes a new
// one. silent reports whether that was so. pgx gives the place of the silent one back after 15 s.
func Acquire(ctx context.Context, pool *pgxpool.Pool) (conn *pgxpool.Conn, silent bool, err error) {
	if pool.Stat().IdleConns() == 0 { // then it waits for another call, and would lose its turn
		conn, err = pool.Acquire(ctx)
		return conn, false, err
	}
	limit := patience
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/3)
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if conn, err = pool.Acquire(bounded); err == nil || bounded.Err() == nil || ctx.Err() != nil {
		return conn, false, err
	}
	if pool.Stat().IdleConns() > 0 {
		pool.Reset()
	}
	conn, err = pool.Acquire(ctx)
	return conn, true, err
}

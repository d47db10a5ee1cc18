// Package counter is a guarded function of the smallest kind, with the test that
// runs it under chaos: see counter_test.go.
package counter

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/guard"
)

// Add adds to a counter. It reads, decides and writes, so it needs the lock.
func Add(ctx context.Context, g *guard.Guard[pgx.Tx], counter string, n int) error {
	return guard.Do(ctx, g, "counter/"+counter, func(ctx context.Context, tx pgx.Tx) error {
		var value int
		if err := tx.QueryRow(ctx, "select value from counter where name = $1", counter).Scan(&value); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "update counter set value = $2 where name = $1", counter, value+n); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into addition (counter, n) values ($1, $2)", counter, n)
		return err
	})
}

package soak_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// counters is how many resources there are, each a counter of its name.
const counters = 12

func counter(n int) string { return fmt.Sprintf("counter/%02d", n) }

// counterSchema holds the counters, and a row for each step that one of them made,
// with nothing unique about it.
const counterSchema = `
create table counter (name text primary key, value bigint not null);
create table step (op text not null, counter text not null, value bigint not null);`

func makeCounters(t *testing.T, pool *pgxpool.Pool) {
	ctx := t.Context()
	_, err := postgres.Migrate(ctx, pool, "")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, counterSchema)
	require.NoError(t, err)
	for n := range counters {
		_, err = pool.Exec(ctx, "insert into counter values ($1, 0)", counter(n))
		require.NoError(t, err)
	}
}

// step reads a counter, adds one and writes it, in statements of their own: without
// a fence two of them lose an update. It returns what it wrote.
func step(ctx context.Context, tx pgx.Tx, op, counter string) (value int64, err error) {
	if err := tx.QueryRow(ctx, "select value from counter where name = $1", counter).Scan(&value); err != nil {
		return 0, err
	}
	value++
	if _, err := tx.Exec(ctx, "update counter set value = $2 where name = $1", counter, value); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, "insert into step values ($1, $2, $3)", op, counter, value)
	return value, err
}

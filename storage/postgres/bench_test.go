package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// BenchmarkGuarded compares a guarded transaction of two statements with the same
// one unguarded, in turns of one run: only the ratio means anything on a machine
// that does other things too. It reports the median of bare time over guarded time
// (1 = the fence is free), and the quartiles.
func BenchmarkGuarded(b *testing.B) {
	pool := newPool(b)
	store := newStore(b, pool, nil)
	mustExec(b, pool, "create table entry (id bigint generated always as identity primary key, note text not null); insert into item values ('x', 0), ('y', 0)")
	work := func(ctx context.Context, tx pgx.Tx, key string) error {
		if _, err := tx.Exec(ctx, "update item set value = value + 1 where key = $1", key); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into entry (note) values ($1)", key)
		return err
	}
	c := claim(b, store, grant(5, "a"))
	guardedOnce := func() {
		c = write(b, store, c, do(func(ctx context.Context, tx pgx.Tx) error { return work(ctx, tx, "x") }))
	}
	bareOnce := func() {
		require.NoError(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error { return work(b.Context(), tx, "y") }))
	}
	var ratios []float64
	for b.Loop() {
		bare, guarded := timed(bareOnce), timed(guardedOnce)
		ratios = append(ratios, float64(bare)/float64(guarded))
	}
	slices.Sort(ratios)
	for _, quartile := range []int{25, 50, 75} {
		b.ReportMetric(ratios[len(ratios)*quartile/100], fmt.Sprintf("ratio-p%d", quartile))
	}
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

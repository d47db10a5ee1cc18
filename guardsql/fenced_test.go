package guardsql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
)

type verdict struct {
	testing.TB
	failure string
}

func (*verdict) Helper() {}

func (v *verdict) Fatalf(format string, args ...any) { v.failure = fmt.Sprintf(format, args...) }

// A read on the service's own pool, of what the transaction writes, is found in a test of the service's own.
func TestRequireFenced_FindsAReadAroundTheTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := stdlib.OpenDBFromPool(w.open(nil).pool)
	defer own.Close()
	v := &verdict{TB: t}
	guardtest.RequireFenced(v, w.store, "sku/42", func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
		return guard.Do(ctx, p.Guard, "sku/42", func(ctx context.Context, tx pgx.Tx) error {
			return with(ctx, tx, func(db *sql.DB) error {
				var qty int
				if err := own.QueryRow("select qty - 1 from stock").Scan(&qty); err != nil {
					return err
				}
				_, err := db.ExecContext(ctx, "update stock set qty = $1", qty)
				return err
			})
		})
	}, w.qty)
	require.Contains(t, v.failure, "a table that run's transaction writes: select qty - 1 from stock; let it")
}

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

// The usual mistakes are found in a test of the service's own.
func TestRequireFenced_FindsWhatGoesAroundTheTransaction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says string
		run  func(ctx context.Context, own, db *sql.DB, returned <-chan struct{}) error
	}{
		"right": {"", func(ctx context.Context, own, db *sql.DB, _ <-chan struct{}) error {
			if _, err := own.ExecContext(ctx, "select from fence.setting"); err != nil { // writes don't depend on that
				return err
			}
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(ctx, take); err != nil {
				return err
			}
			return tx.Commit()
		}},
		"its own pool": {"goes around the fence", func(ctx context.Context, own, _ *sql.DB, _ <-chan struct{}) error {
			_, err := own.ExecContext(ctx, take)
			return err
		}},
		"its own transaction": {"goes around the fence", func(ctx context.Context, own, db *sql.DB, _ <-chan struct{}) error {
			var qty int
			if err := db.QueryRowContext(ctx, "select qty from stock").Scan(&qty); err != nil {
				return err
			}
			tx, err := own.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(ctx, "update stock set qty = $1", qty-1); err != nil {
				return err
			}
			return tx.Commit()
		}},
		"a read on its own pool": {"a table that run's transaction writes: select qty - 1 from stock; let it", func(ctx context.Context, own, db *sql.DB, _ <-chan struct{}) error {
			var qty int
			if err := own.QueryRow("select qty - 1 from stock").Scan(&qty); err != nil {
				return err
			}
			_, err := db.ExecContext(ctx, "update stock set qty = $1", qty)
			return err
		}},
		"a savepoint left open": {"left open: a *sql.Tx", func(ctx context.Context, _, db *sql.DB, _ <-chan struct{}) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, take)
			return err
		}},
		"a goroutine left behind": {"the state didn't change", func(_ context.Context, _, db *sql.DB, returned <-chan struct{}) error {
			go func() {
				<-returned
				_, _ = db.Exec(take)
			}()
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			own := stdlib.OpenDBFromPool(w.open(nil).pool)
			defer own.Close()
			v := &verdict{TB: t}
			guardtest.RequireFenced(v, w.store, "sku/42", func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
				returned := make(chan struct{})
				defer close(returned)
				return guard.Do(ctx, p.Guard, "sku/42", func(ctx context.Context, tx pgx.Tx) error {
					return with(ctx, tx, func(db *sql.DB) error { return c.run(ctx, own, db, returned) })
				})
			}, w.qty)
			if c.says == "" {
				require.Empty(t, v.failure)
			}
			require.Contains(t, v.failure, c.says)
		})
	}
}

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage/postgres"
)

// A process is killed while the server runs a long statement for it. The server notices
// that the client is gone, instead of keeping its locks until the statement ends.
func TestRun_StatementOfADeadClientIsEnded(t *testing.T) {
	t.Parallel()
	const sleeping = "select count(*) = 1 from pg_stat_activity where query = 'select pg_sleep(3600)' and state = 'active' and datname = current_database()"
	dsn := migrated(t)
	pool := openPool(t, dsn)
	mustExec(t, pool, "create table a_row (n integer); insert into a_row values (0)")
	network, err := pgproxy.New(dsn)
	require.NoError(t, err)
	store := newStore(t, openPool(t, network.DSN()), &postgres.Config{CheckInterval: 100 * time.Millisecond, StatementTimeout: time.Hour})
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	ended := make(chan error, 1)
	go func() {
		ended <- txn.Run(context.Background(), do(func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "update a_row set n = 1"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "select pg_sleep(3600)")
			return err
		}))
	}()
	eventually(t, pool, sleeping)
	require.NoError(t, network.Close()) // so no cancel request can arrive either
	require.Error(t, <-ended)
	eventually(t, pool, "select not ("+sleeping+")")
	mustExec(t, pool, "update a_row set n = 2")
	require.Equal(t, 2, query[int](t, pool, "select n from a_row"))
}

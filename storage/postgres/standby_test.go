package postgres_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// addressOf is where a server listens.
func addressOf(t *testing.T, dsn string) *string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	address := fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
	return &address
}

// A pool may have connections to a server that has become a standby. The store closes them, and goes
// on with one to the primary. While there is no other server, the call may be made again.
func TestStore_LeavesAServerThatIsAStandby(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	dsn := r.direct.Config().ConnString()
	primary, standby := addressOf(t, dsn), addressOf(t, r.standby.DSN())
	eventually(t, r.direct, "select replay_lsn >= pg_current_wal_lsn() from pg_stat_replication")
	reads := func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
		txn, err := store.BeginReadOnly(ctx, c)
		if err != nil {
			return err
		}
		defer txn.Rollback(ctx)
		if err := txn.Run(ctx, statement("select 1")); err != nil {
			return err
		}
		_, err = txn.Commit(ctx, nil)
		return err
	}
	runs := func(op storage.Op[pgx.Tx]) func(context.Context, *postgres.Store, storage.Claim) error {
		return func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
			_, err := attempt(ctx, store, op, c)
			return err
		}
	}
	var batch postgres.Batch
	batch.Exec("update item set value = value")
	for name, use := range map[string]func(context.Context, *postgres.Store, storage.Claim) error{
		"claim": func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
			_, err := store.Claim(ctx, c)
			return err
		},
		"look-up": func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
			_, _, err := store.Recall(ctx, storage.OnceKey{Key: "k"}, c)
			return err
		},
		"resolve": func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
			_, err := store.Resolve(ctx, storage.InDoubt{Claims: []storage.Claim{c}, Tx: 9})
			return err
		},
		"statement":                runs(statement("update item set value = value")),
		"statement with arguments": runs(statement("update item set value = $1 where key = 'none'", 1)),
		"several statements":       runs(statement("select 1; select 2")),
		"no statement":             runs(do(func(context.Context, pgx.Tx) error { return nil })),
		"batch":                    runs(&batch),
		"read only":                reads,
		"check":                    func(ctx context.Context, store *postgres.Store, _ storage.Claim) error { return store.Check(ctx) },
	} {
		for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
			name := fmt.Sprintf("%s, %s", name, level)
			var to atomic.Pointer[string]
			to.Store(primary)
			pool := openPool(t, dsn, single, func(cfg *pgxpool.Config) {
				cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, *to.Load())
				}
			})
			store := newStore(t, pool, at(level))
			g := grant(5, "a")
			g.Resource = name
			c := claim(t, store, g)
			pool.Reset()
			to.Store(standby)
			require.True(t, query[bool](t, pool, "select pg_is_in_recovery()"), name)

			err := use(t.Context(), store, c)
			require.ErrorIs(t, err, postgres.ErrNotReady, name)
			require.ErrorContains(t, err, "it is a standby (in recovery); connect to the primary", name)
			require.ErrorAs(t, err, new(*postgres.TransientError), name)
			require.True(t, guard.SafeToRetry(err), name)

			require.True(t, query[bool](t, pool, "select pg_is_in_recovery()"), name)
			to.Store(primary)
			require.NoError(t, use(t.Context(), store, c), name)
		}
	}
}

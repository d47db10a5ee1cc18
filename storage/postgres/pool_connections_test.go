package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// single gives a pool one connection: the next call gets the connection as the last one left it.
func single(cfg *pgxpool.Config) { cfg.MaxConns = 1 }

const backend = "select pg_backend_pid()"

// An eviction terminates a listed backend whatever it is doing by then. So the connection of a superseded transaction
// that didn't commit is closed, however it ended; any other connection is used again.
func TestPool_GetsNoConnectionThatAnEvictionMayHaveListed(t *testing.T) {
	t.Parallel()
	type use func(t *testing.T, store *postgres.Store, c storage.Claim, meanwhile func())
	ended := func(end func(ctx context.Context, txn storage.Txn[pgx.Tx])) use {
		return func(t *testing.T, store *postgres.Store, c storage.Claim, meanwhile func()) {
			txn := begin(t, store, c)
			meanwhile()
			end(t.Context(), txn)
		}
	}
	for name, use := range map[string]use{
		"begun late": func(t *testing.T, store *postgres.Store, c storage.Claim, meanwhile func()) {
			meanwhile()
			_, _ = attempt(t.Context(), store, statement("select 1"), c)
		},
		"rolled back": ended(func(ctx context.Context, txn storage.Txn[pgx.Tx]) { txn.Rollback(ctx) }),
		"failed": ended(func(ctx context.Context, txn storage.Txn[pgx.Tx]) {
			_ = txn.Run(ctx, do(func(context.Context, pgx.Tx) error { return errors.New("sold out") }))
		}),
		"ended by itself": ended(func(ctx context.Context, txn storage.Txn[pgx.Tx]) { _ = txn.Run(ctx, statement("commit")) }),
		"of the second resource": func(t *testing.T, store *postgres.Store, c storage.Claim, meanwhile func()) {
			txn := begin(t, store, claim(t, store, grantOf("sku/2", c.Grant.Token)), c)
			meanwhile()
			txn.Rollback(t.Context())
		},
		"sealed": ended(func(ctx context.Context, txn storage.Txn[pgx.Tx]) { _, _ = txn.Commit(ctx, nil) }),
		"read": func(t *testing.T, store *postgres.Store, c storage.Claim, meanwhile func()) {
			txn := beginRead(t, store, c)
			meanwhile()
			_, _ = txn.Commit(t.Context(), nil)
		},
	} {
		test := func(t *testing.T, level pgx.TxIsoLevel) {
			dsn := migrated(t)
			others, pool := openPool(t, dsn), openPool(t, dsn, single, with(map[string]string{"default_transaction_isolation": "serializable"}))
			successor, store := newStore(t, others, nil), newStore(t, pool, at(level))
			higher := []fence.Grant{grant(6, "b"), {Resource: resource, Epoch: 2, Token: 3, Holder: "c"}}
			c := claim(t, store, grant(5, "a"))
			for _, next := range higher {
				before := query[int](t, pool, backend)
				use(t, store, c, func() {})
				require.Equal(t, before, query[int](t, pool, backend), "no other grant has claimed since")
				c = claim(t, store, c.Grant)
				use(t, store, c, func() { claimOnly(t, others, next) })
				require.NotEqual(t, before, query[int](t, pool, backend), "superseded by %v", next)
				c = claim(t, successor, next)
			}
		}
		t.Run(name, func(t *testing.T) { atEachLevel(t, test) })
	}
}

func TestStore_AsksAgainOnAnotherConnection(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	admin := openPool(t, dsn)
	judge := newStore(t, admin, nil)
	checked := false
	used := map[uint32]bool{}
	store := newStore(t, openPool(t, dsn, single, func(cfg *pgxpool.Config) {
		cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			pid := conn.PgConn().PID()
			if !checked || !used[pid] {
				used[pid] = true
				return true, nil
			}
			_, err := admin.Exec(ctx, "select pg_terminate_backend($1, 60000)", pid)
			return true, err
		}
	}), at(pgx.RepeatableRead))
	require.NoError(t, store.Check(t.Context()))
	checked = true
	c := claim(t, judge, grant(5, "a"))

	for _, name := range []string{"claim", "look-up", "resolve"} {
		require.NoError(t, calls[name](t.Context(), store, c), name)
	}

	// A serialization failure, which only a look at the fence can name.
	c = claim(t, judge, c.Grant)
	txn := begin(t, store, c)
	write(t, judge, c, set("x", 1))
	_, err := txn.Commit(t.Context(), nil)
	require.ErrorContains(t, err, "40001")
	requireRejected(t, err, storage.ReasonOvertaken)

	// And a rejection that the server has named.
	claimOnly(t, admin, grant(6, "b"))
	_, err = store.Claim(t.Context(), storage.Claim{Grant: c.Grant})
	requireRejected(t, err, storage.ReasonStale)
	rejections := recorded(t, judge)
	require.Len(t, rejections, 2)
	for _, r := range rejections {
		require.EqualValues(t, 1, r.Count)
	}
}

// The store's own transactions that are cancelled end on the server before the pool opens another
// connection in their place, so a storm of cancellations makes no more sessions than MaxConns.
func TestPool_CancelledCallsLeaveNoSessionBehind(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	admin := openPool(t, dsn)
	pool := openPool(t, dsn, single, with(map[string]string{"application_name": "cancelled"}))
	store := newStore(t, pool, &postgres.Config{StatementTimeout: time.Hour})
	c := claim(t, store, grant(5, "a"))
	locked(t, admin, "select from fence.resource for update")
	for _, name := range []string{"claim", "resolve"} {
		ctx, cancel := context.WithCancel(t.Context())
		asked := background(func() (struct{}, error) { return struct{}{}, calls[name](ctx, store, c) })
		const sessions = "from pg_stat_activity where application_name = 'cancelled' and datname = current_database()"
		eventually(t, admin, "select true "+sessions+" and wait_event_type = 'Lock'")
		before := query[int](t, admin, "select pid "+sessions)
		cancel()
		require.ErrorIs(t, receive(t, asked).err, context.Canceled, name)
		require.NoError(t, pool.Ping(t.Context()), name)
		require.Equal(t, 1, query[int](t, admin, "select count(*) "+sessions), name)
		require.NotEqual(t, before, query[int](t, admin, "select pid "+sessions), name)
	}
}

// A network has forgotten all idle connections, and new ones work. One call finds out, for the others too.
func TestPool_DoubtsTheOthersAfterASilentConnection(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *postgres.Store, *storage.Claim) error{
		"write": func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
			return moves(ctx, store, set("x", 1), c)
		},
		"history": func(ctx context.Context, store *postgres.Store, _ *storage.Claim) error {
			_, err := store.Rejections(ctx, "r", 1)
			return err
		},
		"prune": func(ctx context.Context, store *postgres.Store, _ *storage.Claim) error {
			_, err := store.Prune(ctx)
			return err
		},
		"check": func(ctx context.Context, store *postgres.Store, _ *storage.Claim) error { return store.Check(ctx) },
		"epoch": func(ctx context.Context, store *postgres.Store, _ *storage.Claim) error {
			return store.CheckEpoch(ctx, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := migrated(t)
			option, forget, made := pgserver.Forgetful(t, dsn)
			pool := openPool(t, dsn, option)
			store := newStore(t, pool, nil)
			c := claim(t, store, grant(5, "a"))
			forget(pool)
			for range pool.Config().MaxConns {
				ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
				err := call(ctx, store, &c)
				cancel()
				require.NoError(t, err)
			}
			require.EqualValues(t, 1, made.Load(), "one connection served all calls")
		})
	}
}

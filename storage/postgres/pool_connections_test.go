package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// single gives a pool one connection: the next call gets the connection as the last one
// left it.
func single(cfg *pgxpool.Config) { cfg.MaxConns = 1 }

const backend = "select pg_backend_pid()"

// An eviction terminates a listed backend whatever it is doing by then. So the connection
// of a superseded transaction is closed, however the transaction ended; any other
// connection is used again.
func TestPool_GetsNoConnectionThatAnEvictionMayHaveListed(t *testing.T) {
	t.Parallel()
	begun := func(end func(ctx context.Context, txn storage.Txn[pgx.Tx])) func(*testing.T, *postgres.Store, storage.Claim, func()) {
		return func(t *testing.T, store *postgres.Store, c storage.Claim, meanwhile func()) {
			txn := begin(t, store, c)
			require.NoError(t, txn.Run(t.Context(), set("x", 1)))
			meanwhile()
			end(t.Context(), txn)
		}
	}
	for name, use := range map[string]func(t *testing.T, store *postgres.Store, c storage.Claim, meanwhile func()){
		"begun late": func(t *testing.T, store *postgres.Store, c storage.Claim, meanwhile func()) {
			meanwhile()
			_, _ = attempt(t.Context(), store, statement("select 1"), c)
		},
		"rolled back": begun(func(ctx context.Context, txn storage.Txn[pgx.Tx]) { txn.Rollback(ctx) }),
		"failed": begun(func(ctx context.Context, txn storage.Txn[pgx.Tx]) {
			_ = txn.Run(ctx, do(func(context.Context, pgx.Tx) error { return errors.New("sold out") }))
		}),
		"aborted":         begun(func(ctx context.Context, txn storage.Txn[pgx.Tx]) { _ = txn.Run(ctx, statement("select 1/0")) }),
		"ended by itself": begun(func(ctx context.Context, txn storage.Txn[pgx.Tx]) { _ = txn.Run(ctx, statement("commit")) }),
		"of the second resource": func(t *testing.T, store *postgres.Store, c storage.Claim, meanwhile func()) {
			first := c.Grant
			first.Resource = "sku/2"
			txn := begin(t, store, claim(t, store, first), c)
			meanwhile()
			txn.Rollback(t.Context())
		},
		"sealed": begun(func(ctx context.Context, txn storage.Txn[pgx.Tx]) { _, _ = txn.Commit(ctx, nil) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := migrated(t)
			others, pool := openPool(t, dsn), openPool(t, dsn, single)
			successor, store := newStore(t, others, nil), newStore(t, pool, nil)
			higher := []fence.Grant{grant(6, "b"), {Resource: resource, Epoch: 2, Token: 3, Holder: "c"}, {Resource: resource, Epoch: 3, Token: 3, Holder: "d"}}
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
		})
	}
}

// If a pooled connection was terminated while it was idle, the store repeats its request on
// another one: the answer and the record of a rejection arrive.
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

	_, err := store.Claim(t.Context(), storage.Claim{Grant: c.Grant})
	require.NoError(t, err)
	_, found, err := store.Recall(t.Context(), storage.OnceKey{Key: "k"}, c)
	require.NoError(t, err)
	require.False(t, found)
	applied, err := store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 9})
	require.NoError(t, err)
	require.False(t, applied)

	// A serialization failure, which only a look at the fence can name.
	c = claim(t, judge, c.Grant)
	txn := begin(t, store, c)
	write(t, judge, c, set("x", 1))
	_, err = txn.Commit(t.Context(), nil)
	require.ErrorContains(t, err, "40001")
	require.ErrorIs(t, err, storage.ErrOvertaken)
	var rejected *storage.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.NoError(t, rejected.RecordErr)

	// And a rejection that the server has named.
	claimOnly(t, admin, grant(6, "b"))
	_, err = store.Claim(t.Context(), storage.Claim{Grant: c.Grant})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	require.ErrorAs(t, err, &rejected)
	require.NoError(t, rejected.RecordErr)
	rejections, err := judge.Rejections(t.Context(), resource, 10)
	require.NoError(t, err)
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
	store := newStore(t, pool, &postgres.Config{LockTimeout: time.Minute, StatementTimeout: time.Minute})
	c := claim(t, store, grant(5, "a"))
	tx, err := admin.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "select from fence.resource for update")
	require.NoError(t, err)
	for name, ask := range map[string]func(ctx context.Context) error{
		"claim": func(ctx context.Context) error { _, err := store.Claim(ctx, c); return err },
		"resolve": func(ctx context.Context) error {
			_, err := store.Resolve(ctx, storage.InDoubt{Claims: []storage.Claim{c}, Tx: 9})
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		asked := background(func() (struct{}, error) { return struct{}{}, ask(ctx) })
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

// Settings and objects that an operation leaves in the session would change the meaning of
// the next user's statements: the connection is closed.
func TestPool_GetsNoConnectionWithRemains(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	pool := openPool(t, dsn, single)
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	for sql, closed := range map[string]bool{
		"create temporary table item (key text, value bigint)":                       true,
		"create function pg_temp.now() returns int language sql return 1":            true,
		"set search_path = pg_catalog":                                               true,
		"set row_security = off":                                                     true,
		"set statement_timeout = 60000":                                              true,
		"select set_config('timezone', 'Asia/Kathmandu', false)":                     true,
		"do $$ begin perform set_config('synchronous_commit', 'off', false); end $$": true,
		"listen news": true,
		"insert into item values ('x', 1) on conflict do nothing; set role none; set default_transaction_read_only = on; select 1": true,

		"select 1": false,
		"set local search_path = pg_catalog; set local statement_timeout = 60000":               false,
		"create temporary table scratch (x int) on commit drop; insert into scratch values (1)": false,
		"declare c cursor for select 1":                             false,
		"declare c cursor with hold for select 1":                   false,
		"listen news; unlisten *":                                   false,
		"select pg_advisory_lock(7), pg_advisory_lock_shared(7, 7)": false,
		"savepoint s; set search_path = pg_catalog; rollback to s; create temp table item (key text); drop table item": false,
	} {
		before := query[int](t, pool, backend)
		c = write(t, store, c, statement(sql))
		require.Equal(t, closed, before != query[int](t, pool, backend), sql)
		require.Zero(t, query[int](t, pool, "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"), sql)
		before = query[int](t, pool, backend)
		_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql)
			return errors.Join(err, errors.New("sold out"))
		}), c)
		require.ErrorContains(t, err, "sold out")
		require.Equal(t, before, query[int](t, pool, backend), "rolled back: %s", sql)
	}
}

// Settings that the application makes on its connections are not an operation's.
func TestPool_KeepsConnectionsThatTheApplicationHasSetUp(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), single, func(cfg *pgxpool.Config) {
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set search_path = public, pg_temp; set statement_timeout = 60000; create temporary table scratch (x int); listen news")
			return err
		}
	})
	store := newStore(t, pool, nil)
	before := query[int](t, pool, backend)
	c := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	begin(t, store, c).Rollback(t.Context())
	require.Equal(t, before, query[int](t, pool, backend))
}

// slowEviction makes an eviction announce the backends that it has listed and then pause,
// as may happen on a busy machine.
const slowEviction = `
	alter function fence.stale_backends rename to listed;
	create function fence.stale_backends(p_name text, p_epoch bigint, p_token bigint) returns setof integer language plpgsql as $$
	declare
		v_listed integer[] := array(select fence.listed(p_name, p_epoch, p_token));
	begin
		if cardinality(v_listed) > 0 then
			raise notice 'listed';
			perform pg_sleep(0.005);
		end if;
		return query select unnest(v_listed);
	end $$`

// Transactions end while evictions are about to terminate their backends, and other users
// get the connections at once: none of them is terminated.
func TestEvict_HitsNoOtherBackend(t *testing.T) {
	t.Parallel()
	const rounds = 100
	dsn := migrated(t)
	listed := make(chan struct{}, 100)
	others := openPool(t, dsn, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			if n.Message == "listed" { // the server also warns of a backend that has gone
				listed <- struct{}{}
			}
		}
	})
	mustExec(t, others, slowEviction)
	pool := openPool(t, dsn, func(cfg *pgxpool.Config) { cfg.MaxConns = 3 })
	store, successor := newStore(t, pool, patient()), newStore(t, others, patient())
	innocent := grant(1, "z")
	innocent.Resource = "sku/2"
	own := claim(t, store, innocent)

	stop := make(chan struct{})
	var busy sync.WaitGroup
	defer busy.Wait()
	defer close(stop)
	repeat := func(f func() error) {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error("hit:", err)
				}
			}
		})
	}
	for range 3 { // as many as there are connections, so that each is used at once
		repeat(func() error {
			_, err := pool.Exec(context.Background(), "update item set value = value where key = 'x'")
			return err
		})
	}
	repeat(func() error {
		moved, err := attempt(context.Background(), store, set("y", 1), own)
		if err == nil {
			own = moved[0]
		}
		return err
	})
	for round := range rounds {
		txn := begin(t, store, claim(t, successor, grant(fence.Token(2*round+1), "a")))
		superseded := background(func() (storage.Claim, error) {
			return claimOne(context.Background(), successor, grant(fence.Token(2*round+2), "b"))
		})
		receive(t, listed) // the eviction looks for backends,
		receive(t, listed) // and has listed the one that it is going to terminate
		if round%2 == 0 {
			txn.Rollback(t.Context())
		} else {
			_, err := txn.Commit(t.Context(), nil)
			require.Error(t, err)
		}
		require.NoError(t, receive(t, superseded).err)
		require.Empty(t, listed)
	}
}

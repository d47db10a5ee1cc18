package postgres_test

import (
	"context"
	"fmt"
	"strings"
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

func patient() *postgres.Config {
	return postgres.Config{StatementTimeout: time.Hour}.With(postgres.Times{Lock: time.Second, Idle: time.Hour, Network: time.Hour, Check: -1, Evict: 5 * time.Second})
}

func stuck(t *testing.T, pool *pgxpool.Pool, store *postgres.Store, c storage.Claim, op storage.Func[pgx.Tx], ready string) <-chan result[[]storage.Claim] {
	t.Helper()
	done := background(func() ([]storage.Claim, error) { return attempt(t.Context(), store, op, c) })
	eventually(t, pool, "select count(*) = 1 from pg_stat_activity a join pg_locks l on l.pid = a.pid and l.locktype = 'advisory' "+
		"where a.datname = current_database() and "+ready)
	return done
}

func TestClaim_EvictsAStuckPredecessor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		get   string
		ready string
	}{
		"idle with a row locked":      {"", "a.state = 'idle in transaction'"},
		"blocked sending to a client": {"select repeat('x', 1000000) from generate_series(1, 1000)", "a.wait_event = 'ClientWrite'"},
		"in a long statement":         {"select pg_sleep(3600)", "a.wait_event = 'PgSleep'"},
		"with its fence locked":       {"do $$ begin perform from fence.resource for no key update; perform pg_sleep(3600); end $$", "a.wait_event = 'PgSleep'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := migrated(t)
			pool, others := openPool(t, dsn), openPool(t, dsn, single)
			cfg := patient()
			cfg.Isolation = pgx.Serializable
			store, successor := newStore(t, pool, cfg), newStore(t, others, cfg)
			predecessors := claim(t, successor, grant(5, "a"))
			// Defaults that a role may have: less than the claim's wait for the fence and the eviction's pauses; and
			// transactions that begin when no other is under way.
			mustExec(t, others, "set statement_timeout = 300; set session characteristics as transaction isolation level serializable, read only, deferrable")
			resume := make(chan struct{})
			goOn := sync.OnceFunc(func() { close(resume) })
			defer goOn()
			old := stuck(t, pool, store, predecessors, func(ctx context.Context, tx pgx.Tx) error {
				if err := set("x", 1)(ctx, tx); err != nil || c.get == "" {
					<-resume
					return err
				}
				rows, err := tx.Query(ctx, c.get)
				if strings.Contains(c.get, "repeat") {
					<-resume
				}
				rows.Close()
				return err
			}, c.ready)
			write(t, store, claim(t, successor, grant(6, "b")), set("x", 2))
			goOn()
			require.Error(t, receive(t, old).err)
			holds(t, pool, "x", 2)
		})
	}
}

func TestBeginCheck_BoundsTheTransaction(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), single)
	cfg := postgres.Config{StatementTimeout: 12 * time.Second}.With(postgres.Times{Lock: 11 * time.Millisecond, Idle: 13 * time.Second, Network: 14 * time.Second, Check: 15 * time.Second})
	store := newStore(t, pool, cfg)
	const settings = "select string_agg(current_setting(name), ' ') from unnest(array['lock_timeout', 'statement_timeout', " +
		"'idle_in_transaction_session_timeout', 'tcp_user_timeout', 'client_connection_check_interval']) name"
	before := query[string](t, pool, settings)
	write(t, store, claim(t, store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) error {
		require.Equal(t, "11ms 12s 13s 14000 15s", query[string](t, tx, settings))
		return nil
	}))
	require.Equal(t, before, query[string](t, pool, settings))
}

func TestRun_EvictsAStaleTransactionThatBlocksIt(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, patient())
	slipped := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, slipped.Run(t.Context(), set("x", 1)))
	successor := claimOnly(t, pool, grant(6, "b"))
	_, err := attempt(t.Context(), store, set("x", 2), successor)
	require.ErrorAs(t, err, new(*postgres.TransientError))
	write(t, store, successor, set("x", 2))
	holds(t, pool, "x", 2)
}

// gatedList makes stale_backends announce each list that it has made, and wait, with the n-th one,
// for whoever has the gate.
func gatedList(n int) string {
	return fmt.Sprintf(`create sequence fence.lists; alter function fence.stale_backends rename to listed;
		create function fence.stale_backends(p_name text, p_epoch bigint, p_token bigint) returns table (o_pid integer, o_transaction text) language plpgsql as $$
		declare
			v_pids  integer[] := array(select l.o_pid from fence.listed(p_name, p_epoch, p_token) l);
			v_names text[] := array(select l.o_transaction from fence.listed(p_name, p_epoch, p_token) l);
		begin
			if nextval('fence.lists') = %d then
				perform pg_advisory_xact_lock_shared(42);
			end if;
			return query select * from unnest(v_pids, v_names);
		end $$`, n)
}

func closeGate(t *testing.T, pool *pgxpool.Pool) (open func()) {
	t.Helper()
	gate := locked(t, pool, "select pg_advisory_xact_lock(42)")
	return func() { require.NoError(t, gate.Rollback(t.Context())) }
}

func evictAll(pool *pgxpool.Pool) <-chan result[int] {
	return background(func() (n int, err error) {
		err = pool.QueryRow(context.Background(), "select evicted from fence.evict_one($1, 1, 6, true, 10000)", resource).Scan(&n)
		return n, err
	})
}

// A backend that was listed may have ended its transaction before it is terminated, and serve
// another one, even of the same grant.
func TestEvict_EndsTheTransactionThatItHasListed(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	pool := openPool(t, dsn)
	mustExec(t, pool, gatedList(1))
	old := claimOnly(t, pool, grant(5, "a"))
	stale, err := openPool(t, dsn, single).Acquire(t.Context())
	require.NoError(t, err)
	defer stale.Release()
	_, err = stale.Exec(t.Context(), "begin; "+beginCheckCall(old))
	require.NoError(t, err)
	claimOnly(t, pool, grant(6, "b"))
	open := closeGate(t, pool)
	evicted := evictAll(pool)
	waiting(t, pool, "advisory") // the eviction has listed
	_, err = stale.Exec(t.Context(), fmt.Sprintf("rollback; begin; select pg_advisory_xact_lock_shared(%d, 5)", old.Resource))
	require.NoError(t, err)
	open()
	require.Equal(t, result[int]{}, receive(t, evicted))
	require.NoError(t, stale.Ping(t.Context()), "it was terminated")
}

// The eviction has seen a transaction for the last time and is about to terminate its backend when the transaction
// ends, and the connection goes back to the pool. The pool's next user isn't struck: the store looks first, and has the
// server end the session, in whichever way the transaction ends (TestPool_GetsNoConnectionThatAnEvictionMayHaveListed).
func TestEvict_StrikesNoLaterUserOfTheConnection(t *testing.T) {
	t.Parallel()
	const innocent = "select pg_advisory_lock_shared(43)"
	dsn := migrated(t)
	others, pool := openPool(t, dsn), openPool(t, dsn, single)
	mustExec(t, others, gatedList(3))
	txn := begin(t, newStore(t, pool, patient()), claimOnly(t, others, grant(5, "a")))
	claimOnly(t, others, grant(6, "b"))
	open := closeGate(t, others)
	blocker := locked(t, others, "select pg_advisory_xact_lock(43)")
	evicted := evictAll(others)
	waiting(t, others, "advisory") // it has made its last list
	txn.Rollback(t.Context())
	next := background(func() (pgconn.CommandTag, error) { return pool.Exec(context.Background(), innocent) })
	eventually(t, others, "select count(*) = 1 from pg_stat_activity where query = '"+innocent+"' and wait_event = 'advisory' and datname = current_database()")
	open()
	require.NoError(t, receive(t, evicted).err)
	require.NoError(t, blocker.Rollback(t.Context()))
	require.NoError(t, receive(t, next).err)
}

// A claim evicts the transactions that hold their keys when it has committed. So the begin check looks at the fence
// while it holds its key: otherwise a claim that commits between the two would neither evict it nor be seen by it.
func TestBeginCheck_HoldsItsKeyWhenItLooks(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	others, pool := openPool(t, dsn), openPool(t, dsn, single)
	store := newStore(t, pool, postgres.Config{StatementTimeout: time.Hour}.With(postgres.Times{Lock: time.Hour}))
	c := claimOnly(t, others, grant(5, "a"))
	for name, begin := range map[string]func() error{
		"in SQL": func() error { return inOne(t, pool, beginCheckCall(c)) },
		"write":  func() error { _, err := attempt(t.Context(), store, inserts(unique("")), c); return err },
		"read":   func() error { return read(t.Context(), store, statement("select 1"), c) },
	} {
		if name == "write" {
			c = write(t, store, c, inserts("x")) // prepares, and loads what the session needs to know of the table
		} else {
			require.NoError(t, begin())
		}
		successor := locked(t, others, "lock fence.resource in access exclusive mode")
		begun := background(func() (struct{}, error) { return struct{}{}, begin() })
		pid := waiting(t, others, "relation")
		require.Equal(t, 1, query[int](t, others, "select count(*) from pg_locks where locktype = 'advisory' and pid = $1", pid), "keys that the begin check holds")
		next := grant(c.Grant.Token+1, "b")
		_, err := successor.Exec(t.Context(), "select fence.claim_one($1, 1, $2, 'b')", resource, int64(next.Token))
		require.NoError(t, err)
		require.NoError(t, successor.Commit(t.Context()))
		if err = receive(t, begun).err; name == "in SQL" {
			require.ErrorContains(t, err, "ZF001")
		} else {
			require.Equal(t, storage.StageBegin, requireRejected(t, err, storage.ReasonStale, name).Stage)
		}
		c = claimOnly(t, others, next)
	}
}

// Its limits are in force before it waits for anything, such as for the table of the fences.
func TestBeginCheck_BoundsItsOwnWait(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, postgres.Config{StatementTimeout: 10 * time.Minute}.With(postgres.Times{Lock: 50 * time.Millisecond}))
	c := claim(t, store, grant(5, "a"))
	begins := map[string]func(ctx context.Context) error{
		"read": func(ctx context.Context) error { return read(ctx, store, statement("select 1"), c) },
		"write": func(ctx context.Context) error {
			_, err := attempt(ctx, store, statement("select 1"), c)
			return err
		},
	}
	require.NoError(t, begins["read"](t.Context()))
	c = write(t, store, c, statement("select 1"))
	locked(t, pool, "lock fence.resource in access exclusive mode")
	for name, begin := range begins {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := begin(ctx)
		cancel()
		require.ErrorAs(t, err, new(*postgres.TransientError), name)
		require.ErrorContains(t, err, "55P03", name)
	}
}

// A restored etcd issues low tokens again, under a higher epoch. Grants are earlier or later by both.
func TestEvict_ComparesEpochs(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, patient())
	old := begin(t, store, claim(t, store, grant(50, "a")))
	require.NoError(t, old.Run(t.Context(), set("x", 1)))
	restored := fence.Grant{Resource: resource, Epoch: 2, Token: 5, Holder: "b"}
	c := claim(t, store, restored)
	require.Zero(t, query[int](t, pool, "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())"), "not evicted")
	newer := begin(t, store, c)
	require.Equal(t, 0, query[int](t, pool, "select count(*) from fence.stale_backends($1, 1, 60)", resource), "a delayed claimer's list")
	_, err := newer.Commit(t.Context(), nil)
	require.NoError(t, err)
}

func TestEvict_SparesAllOtherBackends(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, patient())
	pids := map[string]int{}
	open := func(name string, c storage.Claim) {
		txn := begin(t, store, c)
		require.NoError(t, txn.Run(t.Context(), do(func(ctx context.Context, tx pgx.Tx) error {
			pids[name] = query[int](t, tx, "select pg_backend_pid()")
			return nil
		})))
	}
	other := grantOf("sku/2", 5)
	open("another resource", claim(t, store, other))
	open("earlier", claimOnly(t, pool, grant(5, "a")))
	open("own", claimOnly(t, pool, grant(6, "b")))
	open("newer", claimOnly(t, pool, grant(7, "c")))

	elsewhere := newPool(t)
	mustExec(t, elsewhere, "select setval(pg_get_serial_sequence('fence.resource', 'id'), $1, false)",
		query[int64](t, pool, "select id from fence.resource where name = $1", other.Resource))
	claimOnly(t, elsewhere, other)
	c := claimOnly(t, elsewhere, grant(5, "a"))
	require.Equal(t, query[int64](t, pool, "select id from fence.resource where name = $1", resource), c.Resource)
	txn := begin(t, newStore(t, elsewhere, patient()), c)
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))

	cfg := patient()
	cfg.Schema = strings.Repeat("s", 40)
	_, err := postgres.Migrate(t.Context(), pool, cfg.Schema)
	require.NoError(t, err)
	inSchema := newStore(t, pool, cfg)
	others := claim(t, inSchema, grant(5, "a"))
	require.Greater(t, others.Resource, int64(1_000_000), "apart from an application's small keys")
	unharmed := begin(t, inSchema, others)

	listed := func(token int) []int {
		return collect[int](t, pool, "select o_pid from fence.stale_backends($1, 1, $2)", resource, token)
	}
	require.Equal(t, []int{pids["earlier"]}, listed(6), "a delayed claimer's list")
	require.ElementsMatch(t, []int{pids["earlier"], pids["own"]}, listed(7))
	require.Empty(t, listed(5))

	// Its own backend, which claims while it holds the lock of an earlier grant.
	require.Equal(t, 1, query[int](t, pool, "select evicted from fence.evict_one($1, 1, 6, true, 10000)", resource))
	require.Equal(t, 0, query[int](t, pool, "select evicted from fence.evict_one($1, 1, 6, true, 10000)", resource), "who has gone is not listed")
	self := locked(t, pool, "select pg_advisory_xact_lock_shared($1::int, 5)", c.Resource)
	require.Equal(t, 0, query[int](t, self, "select evicted from fence.evict_one($1, 1, 6, true, 10000)", resource))
	require.NoError(t, self.Rollback(t.Context()))
	alive := query[int](t, pool, "select count(*) from pg_stat_activity where pid = any($1)", []int{pids["own"], pids["newer"], pids["another resource"]})
	require.Equal(t, 3, alive)
	for _, txn := range []storage.Txn[pgx.Tx]{txn, unharmed} {
		_, err = txn.Commit(t.Context(), nil)
		require.NoError(t, err)
	}

	// A token whose low bits, the only ones in the lock's key, equal those of an earlier token.
	open("same low bits", claimOnly(t, pool, grant(5+1<<31, "d")))
	require.NotContains(t, listed(5+1<<31), pids["same low bits"])
}

type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Any role that may connect can take the begin check's advisory locks. Then the holder's
// transaction can't be evicted, and nothing else changes.
func TestBeginCheck_GoesOnWhereItsKeyIsTaken(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	pool := openPool(t, dsn)
	store := newStore(t, pool, patient())
	c := claim(t, store, grant(5, "a"))
	thief, err := openPool(t, dsn, as(newRole(t, pool, "thief"))).Acquire(t.Context())
	require.NoError(t, err)
	defer thief.Release()
	_, err = thief.Exec(t.Context(), "select pg_advisory_lock($1::int, token) from generate_series(0, 50) token", c.Resource)
	require.NoError(t, err)
	write(t, store, c, set("x", 1))
	write(t, store, claim(t, store, grant(6, "b")), set("x", 2))
	holds(t, pool, "x", 2)
}

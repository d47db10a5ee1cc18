package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// A holder that is superseded while it works changes nothing, and the successor reads the data as it was before. The
// successor claims without evicting, so that the fence rejects the holder.
func TestFence_RejectsTheSuperseded(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool, store := fresh(t, at(level))
		txn := begin(t, store, write(t, store, claim(t, store, grant(5, "a")), set("stock", 1)))
		require.NoError(t, txn.Run(t.Context(), set("sold to", 5)))
		var stock int64
		write(t, store, claimOnly(t, pool, grant(6, "b")), get("stock", &stock))
		require.EqualValues(t, 1, stock)
		_, err := txn.Commit(t.Context(), nil)
		require.Equal(t, grant(6, "b"), requireRejected(t, err, storage.ReasonStale).Current)
		holds(t, pool, "sold to", 0)
		require.Len(t, recorded(t, store), 1)
	})
}

func unprotected(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	triggers := map[string]string{"protect_history": "history", "protect_kept_history": "history", "protect_fence": "resource"}
	for trigger, table := range triggers {
		mustExec(t, pool, "alter table fence."+table+" disable trigger "+trigger)
	}
	mustExec(t, pool, sql, args...)
	for trigger, table := range triggers {
		mustExec(t, pool, "alter table fence."+table+" enable always trigger "+trigger)
	}
}

// A guarded transaction runs at the level of the Config, and a claim at READ COMMITTED, regardless of the session's
// default. None is deferrable: it would wait for others before any limit is in force.
func TestIsolation_IsWhatTheConfigSays(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), with(map[string]string{"default_transaction_isolation": "repeatable read", "default_transaction_deferrable": "on"}))
	for _, level := range levels {
		store := newStore(t, pool, at(level))
		mode := func(readOnly string) storage.Func[pgx.Tx] {
			return func(_ context.Context, tx pgx.Tx) error {
				require.Equal(t, string(level)+" "+readOnly, query[string](t, tx, "select concat_ws(' ', current_setting('transaction_isolation'), current_setting('transaction_read_only'))"))
				return nil
			}
		}
		c := write(t, store, claim(t, store, grant(5, "a")), mode("off"))
		require.NoError(t, read(t.Context(), store, mode("on"), c))
		require.NoError(t, read(t.Context(), store, do(func(_ context.Context, tx pgx.Tx) error {
			require.Equal(t, "off", query[string](t, tx, "select current_setting('transaction_deferrable')"))
			return nil
		}), c))
	}
}

// At the stricter levels a late write fails with a serialization failure, already in the operation. It is reported and
// recorded as the rejection that caused it, whatever error the operation returns.
func TestIsolation_ConflictIsNamedAndRecorded(t *testing.T) {
	t.Parallel()
	mine := errors.New("the operation's own error")
	for name, c := range map[string]struct {
		reason storage.Reason
		then   storage.Func[pgx.Tx]
	}{
		"replaced":     {storage.ReasonStale, func(context.Context, pgx.Tx) error { return mine }},
		"not at all":   {storage.ReasonOvertaken, func(context.Context, pgx.Tx) error { return nil }},
		"after others": {storage.ReasonStale, set("y", 3)}, // 25P02
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, at(pgx.RepeatableRead))
			held := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
			txn, other := begin(t, store, held), held // which takes the snapshot
			if c.reason == storage.ReasonStale {
				other = claimOnly(t, pool, grant(6, "b"))
			}
			write(t, store, other, set("x", 2))
			err := txn.Run(t.Context(), do(func(ctx context.Context, tx pgx.Tx) error {
				require.Error(t, set("x", 3)(ctx, tx))
				return c.then(ctx, tx)
			}))
			require.Equal(t, storage.StageRun, requireRejected(t, err, c.reason).Stage)
			require.Equal(t, name == "replaced", errors.Is(err, mine))
			rejections := recorded(t, store)
			require.Len(t, rejections, 1)
			require.Equal(t, c.reason, rejections[0].Reason)
			require.Equal(t, storage.StageRun, rejections[0].Stage)
			holds(t, pool, "x", 2)
		})
	}
}

// A conflict with an unfenced writer is not a rejection. At READ COMMITTED the operation goes on with the other's data;
// at the stricter levels it may run again, and then succeeds.
func TestIsolation_ConflictWithOthersIsTransient(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool, store := fresh(t, at(level))
		c := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
		claims, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, statement("select 1")(ctx, tx), "takes the snapshot")
			mustExec(t, pool, "update item set value = 10")
			return add("x", 1)(ctx, tx)
		}), c)
		if level == pgx.ReadCommitted {
			require.NoError(t, err)
			require.Equal(t, c.Seq+1, claims[0].Seq)
		} else {
			require.ErrorAs(t, err, new(*postgres.TransientError))
			require.NotErrorAs(t, err, new(*storage.RejectedError))
			holds(t, pool, "x", 10)
			write(t, store, c, add("x", 1))
		}
		holds(t, pool, "x", 11)
		require.Empty(t, recorded(t, store))
	})
}

type pair struct {
	*testing.T
	store    *postgres.Store
	pool     *pgxpool.Pool
	one, two storage.Claim
}

func newPair(t *testing.T, dsn string) *pair {
	t.Helper()
	p := &pair{T: t, pool: openPool(t, dsn)}
	cfg := patient()
	cfg.Isolation = pgx.Serializable
	p.store = newStore(t, p.pool, cfg)
	mustExec(t, p.pool, "create table a (value bigint); create table b (value bigint); insert into a values (0); insert into b values (0)")
	p.one = claim(t, p.store, grantOf("a", 5))
	p.two = claim(t, p.store, grantOf("b", 5))
	mustExec(t, p.pool, "analyze") // as autovacuum does: now the planner knows how few fences there are
	return p
}

func (p *pair) overlap() error {
	p.Helper()
	work := func(table string) storage.Func[pgx.Tx] {
		return func(ctx context.Context, tx pgx.Tx) error {
			return statement("update "+table+" set value = $1", query[int64](p.T, tx, "select value from "+table)+1)(ctx, tx)
		}
	}
	one, two := begin(p.T, p.store, p.one), begin(p.T, p.store, p.two)
	require.NoError(p, one.Run(p.Context(), work("a")))
	require.NoError(p, two.Run(p.Context(), work("b")))
	moves := []storage.Move{{Hash: new([32]byte)}}
	moved, err := one.Commit(p.Context(), moves)
	require.NoError(p, err)
	p.one = moved[0]
	if moved, err = two.Commit(p.Context(), moves); err == nil {
		p.two = moved[0]
	}
	return err
}

func TestIsolation_DifferentResourcesDoNotConflict(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"small": 0, "large": 10000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := migrated(t)
			mustExec(t, openPool(t, dsn), "select fence.claim_one('other/' || i, 1, 1, 'h') from generate_series(1, $1::int) i", others)
			p := newPair(t, dsn)
			const times = 20
			for i := range times {
				require.NoError(t, p.overlap(), "time %d", i)
			}
			require.Equal(t, 2*times, query[int](t, p.pool, "select a.value + b.value from a, b"))
		})
	}
}

// verifyChain requires that the history verifies, by hashes computed apart from the database. That they
// cover each column is shown by the tests of package audit.
func verifyChain(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	database, err := audit.Open(pool, "")
	require.NoError(t, err)
	report, err := database.Verify(t.Context(), audit.VerifyOptions{})
	require.NoError(t, err)
	require.NotZero(t, report.Entries)
	require.Empty(t, report.Findings)
}

func TestFence_StandsWithoutHistory(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	old := claim(t, store, grant(4, "a"))
	doubtful := claim(t, store, grant(5, "b"))
	c := write(t, store, doubtful, set("x", 1))
	unprotected(t, pool, "delete from fence.history")
	_, err := attempt(t.Context(), store, set("x", 2), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = attempt(t.Context(), store, set("x", 2), doubtful)
	require.ErrorIs(t, err, storage.ErrOvertaken)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: grant(4, "a")})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{doubtful}, Tx: c.Tx})
	require.ErrorIs(t, err, postgres.ErrPruned)
	write(t, store, c, set("x", 3))
}

func TestFence_IsRebuiltFromItsHistory(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	old := claim(t, store, grant(4, "a"))
	c := write(t, store, claim(t, store, grant(5, "b")), set("x", 1))
	unprotected(t, pool, "delete from fence.resource")
	_, err := attempt(t.Context(), store, set("x", 2), c)
	requireRejected(t, err, storage.ReasonWentBack)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 1})
	require.ErrorIs(t, err, postgres.ErrPruned)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: old.Grant})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	require.Equal(t, c, claim(t, store, c.Grant))
	_, err = attempt(t.Context(), store, set("x", 2), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	write(t, store, c, set("x", 3))
	claim(t, store, grant(6, "c"))
	verifyChain(t, pool)
	holds(t, pool, "x", 3)
}

func TestFence_BehindItsHistoryIsNamedAndRepaired(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	other := grantOf("sku/2", 5)
	whole := write(t, store, claim(t, store, other), set("y", 1))
	old := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	row := query[string](t, pool, "select f::text from fence.resource f where name = $1", resource)
	doubt := storage.InDoubt{Claims: []storage.Claim{old}, Tx: 9}
	last := write(t, store, claim(t, store, grant(6, "b")), set("x", 2))
	mustExec(t, pool, `update fence.resource f set epoch = o.epoch, token = o.token, holder = o.holder, seq = o.seq, tx = o.tx,
		claim_seq = o.claim_seq, claimed_at = o.claimed_at, hash = o.hash from (select ($1::text::fence.resource).*) o where f.id = o.id`, row)

	_, err := store.Claim(t.Context(), storage.Claim{Grant: grant(7, "c")})
	requireNotReady(t, err, postgres.FenceBehind)
	requireNotReady(t, ownAttempt(t.Context(), store, set("x", 3)), postgres.FenceBehind)
	require.ErrorContains(t, err, `the owner of the schema runs: select "fence".repair()`)
	_, err = attempt(t.Context(), store, set("x", 3), old)
	requireNotReady(t, err, postgres.FenceBehind)
	_, err = store.Resolve(t.Context(), doubt)
	requireNotReady(t, err, postgres.FenceBehind)
	holds(t, pool, "x", 2)

	require.Equal(t, []string{resource}, column(t, pool, `select "fence".repair()`))
	require.Empty(t, column(t, pool, `select "fence".repair()`))
	_, err = attempt(t.Context(), store, set("x", 3), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	require.Equal(t, last, claim(t, store, last.Grant))
	write(t, store, last, set("x", 4))
	write(t, store, claim(t, store, grant(7, "c")), set("x", 5))
	write(t, store, whole, set("y", 2))
	verifyChain(t, pool)
}

func TestViews_SayWhatTheTablesHave(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	txn := begin(t, store, c)
	claims, err := txn.Commit(t.Context(), []storage.Move{{Ops: []storage.OpRecord{{ID: "order-1", Name: "sell", Attrs: map[string]string{"qty": "2"}}, {ID: "order-2"}}}})
	require.NoError(t, err)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: claims, Tx: 77})
	require.NoError(t, err)
	unprotected(t, r.admin, "insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops) select id, 'x', 4, 99, 1, '1', now(), '\\x0a', '{}' from fence.resource")

	require.Equal(t, []string{
		"sku/1 1 claim 1 5 a 1", "sku/1 2 write 1 5 a 1", "sku/1 3 void 1 5 a 1", "sku/1 4 x - - - 99",
	}, column(t, r.reader, "select concat_ws(' ', resource, position, kind, coalesce(epoch::text, '-'), coalesce(token::text, '-'), coalesce(holder, '-'), claim_position) from fence.entry order by resource, position"))
	require.Equal(t, []string{
		`sku/1 2 1 order-1 sell {"qty":"2"} 5 a`, `sku/1 2 2 order-2 - - 5 a`, `sku/1 4 1 - {"malformed" : "{}"}`,
	}, column(t, r.reader, "select concat_ws(' ', resource, position, number, id, coalesce(name, '-'), coalesce(attrs::text, '-'), token, holder) from fence.entry_operation order by resource, position, number"))
	require.Equal(t, []string{"sku/1 3 1 5 a 1 t"},
		column(t, r.reader, "select concat_ws(' ', resource, position, epoch, token, holder, claim_position, hash = (select e.hash from fence.entry e where e.position = 3)) from fence.current_fence"))
}

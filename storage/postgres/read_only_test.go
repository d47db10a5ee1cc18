package postgres_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func read(ctx context.Context, store *postgres.Store, op storage.Op[pgx.Tx], claims ...storage.Claim) error {
	txn, err := store.BeginReadOnly(ctx, claims...)
	_, err = through(ctx, txn, err, op)
	return err
}

func beginRead(t testing.TB, store *postgres.Store, claims ...storage.Claim) storage.Txn[pgx.Tx] {
	t.Helper()
	txn, err := store.BeginReadOnly(t.Context(), claims...)
	require.NoError(t, err)
	t.Cleanup(func() { txn.Rollback(context.Background()) })
	require.NoError(t, txn.Run(t.Context(), get("x", new(int64))))
	return txn
}

// A claim comes after the read. At READ COMMITTED the check is the last statement of the transaction, with a snapshot
// of its own. Inside the transaction the stricter levels don't show the claim: there the check stands after COMMIT.
func TestReadOnly_IsCheckedBehindItsSnapshot(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool, store := fresh(t, at(level))
		c := claim(t, store, grant(5, "a"))
		txn := beginRead(t, store, c)
		claimOnly(t, pool, grant(6, "b"))
		var unmoved bool
		require.NoError(t, txn.Run(t.Context(), do(func(ctx context.Context, tx pgx.Tx) error {
			unmoved = query[bool](t, tx, "select seq = $1 from fence.resource where id = $2", c.Seq, c.Resource)
			return nil
		})))
		require.Equal(t, level != pgx.ReadCommitted, unmoved)
		_, err := txn.Commit(t.Context(), nil)
		rejected := requireRejected(t, err, storage.ReasonStale)
		require.Equal(t, storage.StageCheck, rejected.Stage)
		require.Equal(t, grant(6, "b"), rejected.Current)
	})
}

// What nobody owns here is read without a lock, past a writer's locks, and no writer waits for it, or takes it for a
// transaction of the fence's holder.
func TestReadOnly_WithoutALockHoldsUpNobody(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool, store := fresh(t, at(level))
		g, writer := newOwnGuard(t, pool, store, nil), newStore(t, pool, nil)
		resources := []string{resource, "sku/2"}
		beginOwn(t, writer, unseen(resources...)...).write(t, set("x", 1))
		before := fences(t, pool)
		open := beginOwn(t, writer, unseen(resources...)...)
		require.NoError(t, open.Run(t.Context(), set("x", 2)))
		var x int64
		require.NoError(t, guard.Do(t.Context(), g, resources, get("x", &x), guard.ReadOnly(), guard.Retryable()))
		require.EqualValues(t, 1, x)
		require.Equal(t, before, fences(t, pool))
		open.write(t, set("x", 2))
		for _, resources := range [][]string{resources, resources[:1]} {
			looked, err := store.Look(t.Context(), unseen(resources...)...)
			require.NoError(t, err)
			reader := beginRead(t, store, looked...)
			require.Zero(t, query[int](t, pool, "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())"))
			beginOwn(t, writer, unseen(resources...)...).write(t, add("x", 1))
			_, err = reader.Commit(t.Context(), nil)
			require.ErrorIs(t, err, storage.ErrMoved)
		}
		require.Zero(t, query[int](t, pool, "select count(*) from fence.lock where session is not null"))
		for range 3 {
			require.NoError(t, guard.Do(t.Context(), g, resource, get("x", &x), guard.ReadOnly(), guard.Retryable()))
		}
		mustExec(t, pool, "update fence.resource set timeline = timeline + 1") // as a failover does
		require.NoError(t, guard.Do(t.Context(), g, resource, get("x", &x), guard.ReadOnly(), guard.Retryable()))
		require.Equal(t, 1, query[int](t, pool, "select count(*) from fence.lock where session is not null"), "it has claimed")
		require.Empty(t, recorded(t, store))
	})
}

func TestReadOnly_ComparesAllOfThePosition(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool, store := fresh(t, at(level))
		for change, want := range map[string]storage.Reason{
			"epoch = epoch + 1":       storage.ReasonStale,
			"token = token + 1":       storage.ReasonStale,
			"holder = 'x'":            storage.ReasonCollision,
			"seq = seq + 1":           storage.ReasonOvertaken,
			"seq = seq - 1":           storage.ReasonWentBack,
			"tx = tx + 1":             storage.ReasonWentBack,
			"epoch = 0":               storage.ReasonWentBack,
			"timeline = timeline + 1": storage.ReasonFailedOver,
			"prev_token = 4, claim_seq = 0, timeline=timeline": "",
		} {
			claims := []storage.Claim{claim(t, store, grantOf(change, 5)), claim(t, store, grantOf("sku/0", 7))}
			txn := beginRead(t, store, claims...)
			mustExec(t, pool, "update fence.resource set "+change+" where name = $1", change)
			_, err := txn.Commit(t.Context(), nil)
			if want == "" {
				require.NoError(t, err, change)
				continue
			}
			require.Equal(t, claims[0].Grant, requireRejected(t, err, want, change).Grant, change)
		}
	})
}

func guardOn(t *testing.T) (*pgxpool.Pool, *guard.Guard[pgx.Tx]) {
	t.Helper()
	pool := newPool(t)
	return pool, newGuard(t, newStore(t, pool, nil))
}

func TestReadOnly_CannotWrite(t *testing.T) {
	t.Parallel()
	pool, g := guardOn(t)
	mustExec(t, pool, "create sequence seq")
	for sql, want := range map[string]string{
		"insert into item values ('x', 1)": "25006",
		"select nextval('seq')":            "25006",
		"select lo_from_bytea(0, 'x')":     "25006", // which PostgreSQL refuses itself from 16 on
		"create temporary table t ()":      "25006",
		"set transaction read write":       "must be set before any query",
	} {
		err := guard.Do(t.Context(), g, resource, statement(sql), guard.ReadOnly())
		require.ErrorContains(t, err, want, sql)
		require.False(t, guard.SafeToRetry(err))
		if want == "25006" {
			require.ErrorContains(t, err, "guard.ReadOnly", sql)
		}
	}
	// COMMIT runs the queries of cursors that are to outlive it, after the check that nothing was written.
	require.NoError(t, guard.Do(t.Context(), g, resource, statement("declare c cursor with hold for select lo_from_bytea(0, 'x')"), guard.ReadOnly()))
	require.Zero(t, query[int](t, pool, "select count(*) from pg_largeobject_metadata"))
	holds(t, pool, "x", 0)
}

// The last message, or its answer, is lost. Nothing is in doubt: the call may be made again, and
// with Retryable is; unless a text of several statements may have held a COMMIT.
func TestReadOnly_WithoutAnAnswerIsSafeToRetry(t *testing.T) {
	t.Parallel()
	for sql, c := range map[string]struct {
		lose func() *pgproxy.Action
		runs int
	}{"select 1": {pgproxy.SwallowCommit, 2}, "select 1; select 2": {pgproxy.SwallowReply, 1}} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, pgx.ReadCommitted)
			g := newGuard(t, f.store)
			for range 3 { // until the lease is kept
				require.NoError(t, guard.Do(t.Context(), g, resource, statement("select 1")))
			}
			runs := 0
			reads := func(options ...guard.Option) error {
				lost := c.lose()
				f.proxy.OnCommit(func(string) *pgproxy.Action { return lost })
				return guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
					runs++
					return statement(sql)(ctx, tx)
				}, append(options, guard.ReadOnly())...)
			}
			err := reads()
			require.ErrorContains(t, err, "no answer to the read check")
			require.NotErrorIs(t, err, guard.ErrUnknownOutcome)
			require.Equal(t, c.runs == 2, guard.SafeToRetry(err))
			runs = 0
			require.Equal(t, c.runs == 2, reads(guard.Retryable()) == nil)
			require.Equal(t, c.runs, runs)
			require.NotContains(t, kinds(t, f.direct), storage.KindVoid)
		})
	}
}

func TestReadOnly_AnsweredByAPoolerIsNoSuccess(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	for name, pooler := range poolers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaultyOn(t, dsn, pgx.RepeatableRead, single)
			txn := beginRead(t, f.store, claim(t, f.direct, grantOf(name, 5)))
			claim(t, f.direct, grantOf(name, 6))
			f.onQuery(pgproxy.Instead(pooler), ".read_xid(")
			_, err := txn.Commit(t.Context(), nil)
			require.Error(t, err)
			require.NotErrorAs(t, err, new(*storage.InDoubtError))
		})
	}
}

// At the stricter levels the check follows COMMIT. A pooler runs it on another connection, where it passes. The database could have gone back
// since the read.
func TestReadOnly_CheckedOnAnotherConnectionIsNoSuccess(t *testing.T) {
	t.Parallel()
	for _, elsewhere := range []bool{false, true} {
		f := newFaulty(t, pgx.RepeatableRead, single)
		other, err := pgconn.Connect(t.Context(), f.dsn)
		require.NoError(t, err)
		txn := beginRead(t, f.store, claim(t, f.direct, grant(5, "a")))
		f.onQuery(pgproxy.Instead(func(ask pgproxy.Ask, sql string) words {
			end, check, _ := strings.Cut(sql, "; commit; ")
			_, check, _ = strings.Cut(check, "read only; ")
			check, _, _ = strings.Cut(check, "; select \"fence\".end_if_superseded")
			answers := []words{ask(end + "; commit")}
			if !elsewhere {
				return joined(append(answers, ask(check)))
			}
			results, err := other.Exec(t.Context(), check).ReadAll()
			require.NoError(t, err)
			row := results[0].Rows[0]
			require.Equal(t, "t", string(row[6]), "on the timeline, as the rest of the position")
			require.Nil(t, row[7], "and it names no transaction")
			return append(joined(answers)[:len(answers[0])-1], &pgproto3.DataRow{Values: row}, done("SELECT 1"), ready('I'))
		}), ".read_xid(")
		_, err = txn.Commit(t.Context(), nil)
		if elsewhere {
			require.ErrorContains(t, err, "no answer to the read check")
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, other.Close(t.Context()))
	}
}

package postgres_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// countWrites counts the writes of a pool with one connection, which doesn't ping it after a pause.
func countWrites(writes *atomic.Int64) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) {
		cfg.MaxConns = 1
		cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
		wrapConn(cfg, func(conn net.Conn) net.Conn { return countedConn{conn, writes} })
	}
}

func inMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode }
}

// BEGIN and the begin check cost no write of their own, except before the first use of a
// statement on a connection. A batch and its transaction are one write.
func TestRun_BeginsWithTheFirstStatement(t *testing.T) {
	t.Parallel()
	batch, _ := batchOf("update item set value = $1", 1)
	firsts := map[string]storage.Op[pgx.Tx]{
		"Exec":               set("x", 1),
		"Exec, no arguments": statement("insert into item values ('x', 1) on conflict (key) do update set value = 1"),
		"QueryRow":           get("x", new(int64)),
		"named":              statement("update item set value = @value", pgx.NamedArgs{"value": 1}),
		"savepoint": do(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Begin(ctx)
			return err
		}),
		"nothing": do(func(context.Context, pgx.Tx) error { return nil }),
		"batch":   batch,
	}
	dsn := migrated(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		var writes atomic.Int64
		store := newStore(t, openPool(t, dsn, countWrites(&writes), inMode(mode)), nil)
		store.TakeForUnlisted(time.Hour)
		c := claim(t, store, grantOf(mode.String(), 5))
		for name, op := range firsts {
			t.Run(mode.String()+", "+name, func(t *testing.T) {
				for range 2 {
					c = write(t, store, c, op)
				}
				before := writes.Load()
				c = write(t, store, c, op)
				want := int64(2)
				if name == "nothing" || name == "batch" {
					want = 1
				}
				require.Equal(t, want, writes.Load()-before)
			})
		}
		store.TakeForUnlisted(-1)
		before := writes.Load()
		write(t, store, c, batch)
		require.EqualValues(t, 2, writes.Load()-before, "one that an eviction may have listed is looked at")
	}
}

// A transaction that a statement begins is the same as one that BEGIN began by itself,
// whichever method the statement is sent by.
func TestRun_BeginsWithAnyMethod(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	mustExec(t, openPool(t, dsn), createRun)
	for _, mode := range execModes {
		pool := openPool(t, dsn, single, inMode(mode))
		store := newStore(t, pool, nil)
		c := claim(t, store, grantOf(mode.String(), 5))
		for name, send := range methods {
			t.Run(mode.String()+", "+name, func(t *testing.T) {
				for range 3 {
					mustExec(t, pool, "delete from item")
					c = write(t, store, c, do(func(ctx context.Context, tx pgx.Tx) error {
						send(ctx, tx, "insert into item values ('x', 1) returning value")
						require.Equal(t, 1, query[int](t, tx, "select count(*)::int from item"))
						require.Equal(t, "2s", query[string](t, tx, "select current_setting('lock_timeout')"))
						return nil
					}))
					holds(t, pool, "x", 1)
				}
			})
		}
	}
}

type tracer struct{ begun, ended []string }

func (r *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.begun = append(r.begun, data.SQL)
	return context.WithValue(ctx, r, data.SQL)
}

func (r *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	r.ended = append(r.ended, ctx.Value(r).(string))
}

func TestRun_TracesTheFirstStatement(t *testing.T) {
	t.Parallel()
	var traced tracer
	store := newStore(t, openPool(t, migrated(t), single, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = &traced }), nil)
	const sql = "delete from item where key = $1"
	write(t, store, claim(t, store, grant(5, "a")), statement(sql, "x"))
	require.Contains(t, traced.begun, sql)
	require.Equal(t, traced.begun, traced.ended)
}

func TestRun_ReturnsTheBeginChecksRejection(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	for token, c := range []struct {
		first    storage.Func[pgx.Tx]
		returned error
	}{{statement("update item set value = 2"), errors.New("the operation's own error")}, {set("x", 2), nil}} {
		old := claim(t, store, grant(fence.Token(10*token+5), "a"))
		for range 3 {
			old = write(t, store, old, c.first)
		}
		claimOnly(t, pool, grant(old.Grant.Token+1, "b"))
		mustExec(t, pool, "update item set value = 1")
		txn := connect(t, store, old)
		err := txn.Run(t.Context(), do(func(ctx context.Context, tx pgx.Tx) error {
			require.Error(t, c.first(ctx, tx))
			require.Error(t, c.first(ctx, tx))
			return c.returned
		}))
		require.Equal(t, storage.StageBegin, requireRejected(t, err, storage.ReasonStale).Stage)
		_, err = txn.Commit(t.Context(), make([]storage.Move, 1))
		require.ErrorIs(t, err, storage.ErrTxEnded)
		require.Zero(t, query[int](t, pool, "select count(*)::int from item where value = 2"))
		require.Len(t, recorded(t, store), token+1)
	}
}

// A transaction without a statement runs its begin check in the message of its seal.
func TestCommit_OfNothingIsRejectedByTheBeginCheck(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	c := claim(t, store, grant(5, "a"))
	claimOnly(t, pool, grant(6, "b"))
	_, err := attempt(t.Context(), store, do(func(context.Context, pgx.Tx) error { return nil }), c)
	require.Equal(t, storage.StageBegin, requireRejected(t, err, storage.ReasonStale).Stage)
	noneInUse(t, pool)
}

// The first statement fails as it would in a transaction that had begun before it: with the
// server's own error at its own position, and so that nothing can commit.
func TestRun_FirstStatementFails(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	c := claim(t, store, grant(5, "a"))
	for _, s := range []struct {
		sql  string
		args []any
		code string
		at   int32
	}{
		{"select nocolumn from item", nil, "42703", 8},
		{"select 1 / 0", nil, "22012", 0},
		{"select nocolumn from item where value = $1", []any{1}, "42703", 8},
		{"select $1::int", []any{1, 2}, "", 0},
		{"select $1::int", []any{"x"}, "", 0},
	} {
		for range 3 {
			_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, s.sql, s.args...)
				require.Error(t, err)
				if s.code == "" {
					return err
				}
				pgErr := new(pgconn.PgError)
				require.ErrorAs(t, err, &pgErr)
				require.Equal(t, s.code, pgErr.Code)
				require.Equal(t, s.at, pgErr.Position)
				require.Error(t, statement("select 1")(ctx, tx), "25P02")
				return nil
			}), c)
			require.Error(t, err)
			require.NotErrorIs(t, err, storage.ErrTxEnded)
			noneInUse(t, pool)
		}
		c = write(t, store, c, set("x", 1))
	}
}

func TestRun_FirstStatementKeepsToTheLimits(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, postgres.Config{StatementTimeout: 10 * time.Minute}.With(postgres.Times{Lock: 50 * time.Millisecond}))
	c := claim(t, store, grant(5, "a"))
	for range 3 {
		c = write(t, store, c, set("x", 1)) // pgx has prepared it on one connection
	}
	locked(t, pool, "lock table item in access exclusive mode")
	for name, op := range map[string]storage.Op[pgx.Tx]{
		"text": statement("delete from item"), "arguments": statement("delete from item where key = $1", "x"),
		"query": get("y", new(int64)), "prepared": set("x", 1),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := attempt(ctx, store, op, c)
		cancel()
		require.ErrorAs(t, err, new(*postgres.TransientError), name)
		require.ErrorContains(t, err, "55P03", name)
	}
}

// The wait for a silent server at the first statement is bounded, although the server can't
// apply its own limits before that statement has arrived.
func TestRun_FirstStatementOnASilentServer(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]storage.Op[pgx.Tx]{
		"text": statement("delete from item"), "arguments": set("x", 1),
		"batch": do(func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("select 1")
			return tx.SendBatch(ctx, b).Close()
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, pgx.ReadCommitted, single)
			store := newStore(t, f.through, postgres.Config{StatementTimeout: 50 * time.Millisecond}.With(postgres.Times{Lock: 50 * time.Millisecond, Network: 50 * time.Millisecond, Cleanup: 50 * time.Millisecond}))
			txn := connect(t, store, write(t, f.direct, claim(t, f.direct, grant(5, "a")), op))
			t.Cleanup(f.proxy.Cut(netfault.ToServer))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := txn.Run(ctx, op)
			require.ErrorIs(t, err, storage.ErrStoreUnavailable)
			require.ErrorContains(t, err, "no answer within 100ms (postgres.Config.StatementTimeout is 50ms, and the network has 50ms)")
		})
	}
}

func TestRun_OutlivesAConnectionThatWasCut(t *testing.T) {
	t.Parallel()
	const more = " on conflict (key) do update set value = item.value + 1"
	for name, op := range map[string]storage.Func[pgx.Tx]{
		"text":      statement("insert into item values ('x', 1)" + more),
		"arguments": statement("insert into item values ($1, 1)"+more, "x"),
		"query": func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "insert into item values ($1, 1)"+more+" returning value", "x").Scan(new(int))
		},
		"several": statement("select 1; insert into item values ('x', 1)" + more),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, pgx.ReadCommitted, single)
			c := write(t, f.store, claim(t, f.direct, grant(5, "a")), op)
			c = write(t, f.store, c, op)
			f.proxy.CutAll()
			write(t, f.store, c, op)
			holds(t, f.pool, "x", 3)
			noneInUse(t, f.through)
		})
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe} {
		t.Run("batch that is not prepared, "+mode.String(), func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, pgx.ReadCommitted, single, inMode(mode))
			first, _ := batchOf("insert into item values ('x', 1)" + more)
			c := write(t, f.store, claim(t, f.direct, grant(5, "a")), first)
			f.proxy.CutAll()
			second, _ := batchOf("insert into item values ($1, 1)"+more, "x")
			write(t, f.store, c, second)
			holds(t, f.pool, "x", 2)
			noneInUse(t, f.through)
		})
	}
}

// A text of several statements may hold a COMMIT: it is not sent again if its answer is lost.
func TestRun_SeveralFirstStatementsAreSentOnce(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted, single)
	c := claim(t, f.direct, grant(5, "a"))
	f.onQuery(pgproxy.SwallowReply(), "insert into item")
	_, err := attempt(t.Context(), f.store, statement("insert into item values ('x', 1) on conflict (key) do update set value = item.value + 1; commit; begin"), c)
	require.Error(t, err)
	holds(t, f.pool, "x", 1)
}

// A statement that a connection has prepared runs on after the server has forgotten it, or a change of
// its table has made it unusable. The first statement of a function fails at most once, as pgx's own do; a
// batch doesn't.
func TestRun_OutlivesAPreparedStatement(t *testing.T) {
	t.Parallel()
	const set, read = "update thing set value = $1 where key = 'x'", "select * from thing where value = $1"
	kinds := map[string]func(value any) storage.Op[pgx.Tx]{
		"Exec":  func(value any) storage.Op[pgx.Tx] { return statement(set, value) },
		"Query": func(value any) storage.Op[pgx.Tx] { return statement(read, value) },
		"batch": func(value any) storage.Op[pgx.Tx] {
			b := &postgres.Batch{}
			b.Exec(set, value).MustAffect(1)
			b.Exec(set, value)
			b.Exec(read, value)
			b.Exec(read, value).Returning().MustAffect(1)
			return b
		},
	}
	dsn := migrated(t)
	for change, value := range map[string]any{ // for the column then
		"deallocate all":                                     2,
		"alter table thing add column more text":             2,
		"alter table thing alter column value type text":     "two",
		"alter table thing alter column value type bigint":   int64(5000000000),
		"alter table thing alter column value type smallint": 2,
	} {
		for kind, op := range kinds {
			for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe} {
				name := change + ", " + kind + ", " + mode.String()
				pool := openPool(t, dsn, single, inMode(mode))
				mustExec(t, pool, "drop table if exists thing; create table thing (key text primary key, value int); insert into thing values ('x', 1)")
				store := newStore(t, pool, nil)
				c := claim(t, store, grant(5, "a"))
				for range 3 {
					c = write(t, store, c, op(1))
				}
				mustExec(t, pool, change)
				if claims, err := attempt(t.Context(), store, op(value), c); err == nil {
					c = claims[0]
				} else {
					require.NotEqual(t, "batch", kind, "%s: %v", name, err)
				}
				for range 2 {
					c = write(t, store, c, op(value))
				}
			}
		}
	}
}

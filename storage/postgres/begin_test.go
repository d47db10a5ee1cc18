package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func inMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode }
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

// The wait for a silent server at the first statement is bounded, although the server can't
// apply its own limits before that statement has arrived.
func TestRun_FirstStatementOnASilentServer(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted, single)
	store := newStore(t, f.through, postgres.Config{StatementTimeout: 50 * time.Millisecond}.With(postgres.Times{Lock: 50 * time.Millisecond, Network: 50 * time.Millisecond, Cleanup: 50 * time.Millisecond}))
	txn := connect(t, store, write(t, f.direct, claim(t, f.direct, grant(5, "a")), set("x", 1)))
	t.Cleanup(f.proxy.Cut(netfault.ToServer))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := txn.Run(ctx, set("x", 1))
	require.ErrorIs(t, err, storage.ErrStoreUnavailable)
	require.ErrorContains(t, err, "no answer within 100ms (postgres.Config.StatementTimeout is 50ms, and the network has 50ms)")
}

func TestRun_FirstStatementSentToASilentServer(t *testing.T) {
	t.Parallel()
	conn := &boundConn{}
	f := newFaulty(t, pgx.ReadCommitted, conn.dialed)
	conn.bounding = func() { t.Cleanup(f.proxy.Cut(netfault.ToServer)) }
	store := newStore(t, f.through, postgres.Config{StatementTimeout: 50 * time.Millisecond}.With(postgres.Times{Lock: time.Minute, Network: 50 * time.Millisecond, Cleanup: 50 * time.Millisecond}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := connect(t, store, claim(t, f.direct, grant(5, "a"))).Run(ctx, set("x", 1))
	require.ErrorIs(t, err, storage.ErrStoreUnavailable)
	require.ErrorContains(t, err, "no answer within 100ms")
}

// The bound of the wait for a first answer is lifted with it, but not what pgx sets when ctx ends meanwhile.
func TestRun_LiftsTheBoundOfTheFirstAnswer(t *testing.T) {
	t.Parallel()
	conn := &boundConn{ended: make(chan struct{}, 2)}
	store := newStore(t, openPool(t, migrated(t), single, conn.dialed), nil)
	c := claim(t, store, grant(5, "a"))
	for _, op := range []storage.Func[pgx.Tx]{set("x", 1), get("x", new(int64))} {
		c = write(t, store, c, do(func(ctx context.Context, tx pgx.Tx) error {
			err := op(ctx, tx)
			require.False(t, conn.bound.Load())
			return err
		}))
	}
	err := connect(t, store, c).Run(t.Context(), do(func(ctx context.Context, tx pgx.Tx) error {
		ctx, cancel := context.WithCancel(ctx)
		conn.lifting = func() {
			cancel()
			<-conn.ended
		}
		rows, err := tx.Query(ctx, "select repeat('x', 20000 * (i % 2)), case i when 2 then pg_sleep(60)::text end from generate_series(0, 2) i")
		require.NoError(t, err)
		for rows.Next() {
		}
		return rows.Err()
	}))
	require.ErrorIs(t, err, context.Canceled)
}

// boundConn is a pool's only connection. It calls bounding before a deadline is set, and lifting before one is lifted,
// once each.
type boundConn struct {
	net.Conn
	bound             atomic.Bool
	bounding, lifting func()
	ended             chan struct{} // gets the deadlines that have passed
}

func (c *boundConn) dialed(cfg *pgxpool.Config) {
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
		if c.Conn != nil {
			return nil, errors.New("dialed again")
		}
		c.Conn, err = dial(ctx, network, addr)
		return c, err
	}
}

func (c *boundConn) SetDeadline(at time.Time) error {
	if call := c.bounding; time.Now().Before(at) && call != nil {
		c.bounding = nil
		call()
	}
	if call := c.lifting; at.IsZero() && call != nil {
		c.lifting = nil
		call()
	}
	c.bound.Store(!at.IsZero())
	err := c.Conn.SetDeadline(at)
	if !at.IsZero() && !time.Now().Before(at) {
		c.ended <- struct{}{}
	}
	return err
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
		"named":   statement("insert into item values (@key, 1)"+more, pgx.NamedArgs{"key": "x"}),
		"several": statement("select 1; insert into item values ('x', 1)" + more),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, pgx.ReadCommitted, single)
			c := write(t, f.store, claim(t, f.direct, grant(5, "a")), op)
			c = write(t, f.store, c, op)
			f.proxy.Reset()
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
			f.proxy.Reset()
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

// A statement that a connection has prepared runs on after the server has forgotten it, or a change of its table has
// made it unusable. The first statement of a function fails at most once, as pgx's own do; a batch doesn't.
func TestRun_OutlivesAPreparedStatement(t *testing.T) {
	t.Parallel()
	const set, read = "update thing set value = $1 where key = 'x'", "select * from thing where value = $1"
	kinds := map[string]func(value any) storage.Op[pgx.Tx]{
		"Exec":  func(value any) storage.Op[pgx.Tx] { return statement(set, value) },
		"Query": func(value any) storage.Op[pgx.Tx] { return statement(read, value) },
		"formats": func(value any) storage.Op[pgx.Tx] {
			return do(func(ctx context.Context, tx pgx.Tx) error {
				rows, err := tx.Query(ctx, read, pgx.QueryResultFormatsByOID{pgtype.Int4OID: 1}, value)
				if err != nil {
					return err
				}
				got, err := pgx.CollectRows(rows, pgx.RowToMap)
				for _, row := range got {
					require.Equal(t, fmt.Sprint(value), fmt.Sprint(row["value"]))
				}
				return err
			})
		},
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

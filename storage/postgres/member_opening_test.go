package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// prepared runs op in members of transactions, until a connection has prepared what they send.
func prepared(t *testing.T, store *postgres.Store, c storage.Claim, op storage.Op[pgx.Tx]) storage.Claim {
	t.Helper()
	for range 3 {
		txn := connect(t, store, c)
		for range 3 {
			require.NoError(t, member(t.Context(), txn, op))
		}
		claims, err := txn.Commit(t.Context(), nil)
		require.NoError(t, err)
		c = claims[0]
	}
	return c
}

// soon is a context whose deadline is near, and that never ends.
type soon struct {
	context.Context
	in time.Duration
}

func (c soon) Deadline() (time.Time, bool) { return time.Now().Add(c.in), true }

// A member costs the round trips of its own statements, where what separates it from the one
// before can't fail and its first statement is one that the connection knows.
func TestMember_BeginsWithItsFirstStatement(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		op     storage.Func[pgx.Tx]
		change string        // of the database
		left   time.Duration // until the deadline
		writes map[pgx.QueryExecMode]int64
	}{
		"read and write": {op: add("x", 1), writes: map[pgx.QueryExecMode]int64{pgx.QueryExecModeCacheStatement: 2, pgx.QueryExecModeExec: 2, pgx.QueryExecModeSimpleProtocol: 3, pgx.QueryExecModeCacheDescribe: 3}},
		"deadline":       {op: add("x", 1), left: time.Minute, writes: map[pgx.QueryExecMode]int64{pgx.QueryExecModeCacheStatement: 2, pgx.QueryExecModeExec: 2}},
		"near deadline":  {op: add("x", 1), left: 990 * time.Millisecond, writes: map[pgx.QueryExecMode]int64{pgx.QueryExecModeCacheStatement: 3}},
		"named":          {op: statement("update item set value = @value", pgx.NamedArgs{"value": 1}), writes: map[pgx.QueryExecMode]int64{pgx.QueryExecModeCacheStatement: 1, pgx.QueryExecModeExec: 1}},
		"with an option": {op: statement("update item set value = $1", pgx.QueryExecModeCacheStatement, 1), writes: map[pgx.QueryExecMode]int64{pgx.QueryExecModeCacheStatement: 2}},
		"no arguments":   {op: statement("update item set value = 1"), writes: map[pgx.QueryExecMode]int64{pgx.QueryExecModeCacheStatement: 2}},
		"nothing":        {op: func(context.Context, pgx.Tx) error { return nil }, writes: map[pgx.QueryExecMode]int64{pgx.QueryExecModeCacheStatement: 0}},
		"deferrable":     {op: add("x", 1), change: "create table other (id int unique deferrable)", writes: map[pgx.QueryExecMode]int64{pgx.QueryExecModeCacheStatement: 3}},
	}
	for name, c := range cases {
		for mode, want := range c.writes {
			t.Run(name+", "+mode.String(), func(t *testing.T) {
				t.Parallel()
				var writes atomic.Int64
				pool := openPool(t, migrated(t), countWrites(&writes), inMode(mode))
				if c.change != "" {
					mustExec(t, pool, c.change)
				}
				store := newStore(t, pool, &postgres.Config{StatementTimeout: time.Hour})
				txn := connect(t, store, prepared(t, store, claim(t, store, grant(5, "a")), c.op))
				var ctx context.Context = t.Context()
				if c.left > 0 {
					ctx = soon{ctx, c.left}
				}
				require.NoError(t, member(ctx, txn, c.op))
				before := writes.Load()
				for range 10 {
					require.NoError(t, member(ctx, txn, c.op))
				}
				require.Equal(t, 10*want, writes.Load()-before)
				_, err := txn.Commit(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, 10*want+1, writes.Load()-before)
			})
		}
	}
}

// An option for pgx among the arguments of a member's first statement is none of its parameters.
func TestMember_BeginsWithAnOption(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		for name, option := range map[string]any{"mode": pgx.QueryExecModeExec, "formats": pgx.QueryResultFormats{pgx.TextFormatCode}} {
			t.Run(mode.String()+", "+name, func(t *testing.T) {
				t.Parallel()
				store := newStore(t, openPool(t, migrated(t), single, inMode(mode)), nil)
				op := do(func(ctx context.Context, tx pgx.Tx) error {
					return tx.QueryRow(ctx, "select $1::int", option, 1).Scan(new(int))
				})
				c := prepared(t, store, claim(t, store, grant(5, "a")), op)
				write(t, store, c, op)
			})
		}
	}
}

// A member that fails with its first statement, in whatever way, undoes nothing of the one
// before it.
func TestMember_FailsWithItsFirstStatementAlone(t *testing.T) {
	t.Parallel()
	const sql = "insert into item values ($1, $2)"
	ended, end := context.WithCancel(context.Background())
	end()
	fails := map[string]storage.Func[pgx.Tx]{
		"on the server": statement(sql, "before", 1),
		"encoded":       statement(sql, "x", "one"),
		"too many":      statement(sql, "x", 1, 2),
		"unknown":       statement("insert into nothing values ($1)", 1),
		"malformed":     statement("inser into item values ($1)", 1),
		"not begun":     func(_ context.Context, tx pgx.Tx) error { return statement(sql, "x", 1)(ended, tx) },
		"a query": func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "select 1 / (value - value) from item where value > $1", -1).Scan(new(int))
		},
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		for name, op := range fails {
			t.Run(mode.String()+", "+name, func(t *testing.T) {
				t.Parallel()
				pool := openPool(t, migrated(t), single, inMode(mode))
				store := newStore(t, pool, nil)
				warm := do(func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, sql+" on conflict do nothing", "warm", 1)
					return err
				})
				c := prepared(t, store, claim(t, store, grant(5, "a")), warm)
				for range 3 { // the statement that fails is prepared meanwhile, if it can be
					mustExec(t, pool, "delete from item")
					txn := connect(t, store, c)
					require.NoError(t, member(t.Context(), txn, statement(sql, "before", 1)))
					require.Error(t, member(t.Context(), txn, op))
					require.NoError(t, txn.Over())
					require.NoError(t, member(t.Context(), txn, statement(sql, "after", 2)))
					claims, err := txn.Commit(t.Context(), nil)
					require.NoError(t, err)
					c = claims[0]
					holds(t, pool, "before", 1)
					holds(t, pool, "after", 2)
					require.Equal(t, 2, query[int](t, pool, "select count(*)::int from item"))
				}
			})
		}
	}
}

// After an error of its first statement a function can go on with another context, or in a
// savepoint of its own.
func TestMember_GoesOnAfterItsFirstStatement(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), single)
	store := newStore(t, pool, nil)
	txn := connect(t, store, prepared(t, store, claim(t, store, grant(5, "a")), set("x", 1)))
	require.NoError(t, member(t.Context(), txn, set("x", 2)))
	require.NoError(t, member(t.Context(), txn, do(func(ctx context.Context, tx pgx.Tx) error {
		ended, end := context.WithCancel(ctx)
		end()
		require.ErrorIs(t, set("y", 1)(ended, tx), context.Canceled)
		return set("y", 2)(ctx, tx)
	})))
	_, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	holds(t, pool, "x", 2)
	holds(t, pool, "y", 2)
}

// A COMMIT in a pgx.Batch whose results aren't read is found by what comes next: the next
// member, which has run nothing then, or the seal.
func TestMember_CommitInABatchIsFoundLater(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"commit", "rollback"} {
		for _, next := range []bool{true, false} {
			t.Run(sql, func(t *testing.T) {
				t.Parallel()
				pool := newPool(t)
				store := newStore(t, pool, nil)
				txn := connect(t, store, prepared(t, store, claim(t, store, grant(5, "a")), set("x", 1)))
				require.NoError(t, member(t.Context(), txn, set("mate", 1)))
				err := member(t.Context(), txn, do(func(ctx context.Context, tx pgx.Tx) error {
					var b pgx.Batch
					b.Queue(sql)
					b.Queue("begin")
					return tx.SendBatch(ctx, &b).Close()
				}))
				require.NoError(t, err)
				if next {
					err := member(t.Context(), txn, set("next", 1))
					require.Error(t, err)
					require.NotErrorIs(t, err, storage.ErrTxEnded, "it has no effect")
					require.ErrorIs(t, txn.Over(), storage.ErrTxEnded)
				}
				_, err = txn.Commit(t.Context(), nil)
				require.ErrorIs(t, err, storage.ErrTxEnded)
				holds(t, pool, "next", 0)
			})
		}
	}
}

// Members outlive what makes their prepared statements unusable: the transaction fails with an
// error after which another run succeeds, and a statement fails as long as pgx's own may.
func TestMember_OutlivesAPreparedStatement(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(value any) storage.Func[pgx.Tx]{
		"Exec":  func(value any) storage.Func[pgx.Tx] { return statement(setThing, value) },
		"Query": func(value any) storage.Func[pgx.Tx] { return readAll(readThing, value) },
	}
	for name, change := range changes {
		for kind, op := range kinds {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				pool := preparedPool(t, pgx.QueryExecModeCacheStatement)
				store := newStore(t, pool, nil)
				c := prepared(t, store, claim(t, store, grant(5, "a")), op(1))
				mustExec(t, pool, change.sql)
				failed := 0
				for range 4 {
					txn := connect(t, store, c)
					err := errors.Join(member(t.Context(), txn, op(change.value)), member(t.Context(), txn, op(change.value)))
					if over := txn.Over(); over != nil {
						require.ErrorAs(t, over, new(*postgres.TransientError))
						txn.Rollback(t.Context())
						failed++
						continue
					}
					claims, ended := txn.Commit(t.Context(), nil)
					require.NoError(t, ended)
					c = claims[0]
					if err != nil {
						failed++
					}
				}
				require.LessOrEqual(t, failed, 2)
			})
		}
	}
}

// tracer counts the statements that it is told of.
type tracer struct{ statements atomic.Int64 }

func (tr *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	tr.statements.Add(1)
	return ctx
}

func (tr *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A tracer sees each statement of a member.
func TestMember_IsTraced(t *testing.T) {
	t.Parallel()
	var seen tracer
	pool := openPool(t, migrated(t), single, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = &seen })
	store := newStore(t, pool, nil)
	txn := connect(t, store, prepared(t, store, claim(t, store, grant(5, "a")), add("x", 1)))
	before := seen.statements.Load()
	for range 3 {
		require.NoError(t, member(t.Context(), txn, add("x", 1)))
	}
	require.EqualValues(t, 6, seen.statements.Load()-before)
	_, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
}

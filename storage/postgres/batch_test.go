package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func batchOf(sql string, args ...any) (*postgres.Batch, *postgres.Statement) {
	b := &postgres.Batch{}
	return b, b.Exec(sql, args...)
}

const (
	insertItem = "insert into item values ($1, $2)"
	addToItem  = "update item set value = value + $2 where key = $1"
)

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func inEachMode(t *testing.T, test func(t *testing.T, pool *pgxpool.Pool)) {
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			test(t, openPool(t, migrated(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode }))
		})
	}
}

func TestBatch_TakesEffectAndHasResults(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, pool *pgxpool.Pool) {
		store := newStore(t, pool, nil)
		c := claim(t, store, grant(5, "a"))
		for i := range 3 { // parsed, prepared, prepared
			b := &postgres.Batch{}
			inserted := b.Exec(insertItem, fmt.Sprint("a", i), 1).MustAffect(1)
			added := b.Exec(addToItem, fmt.Sprint("a", i), 41)
			read := b.Exec("select key, value from item where key = $1", fmt.Sprint("a", i)).Returning().MustAffect(1)
			none := b.Exec("delete from item where value < 0 returning key").Returning()
			named := b.Exec("insert into item values (@key, @value)", pgx.NamedArgs{"key": fmt.Sprint("b", i), "value": 7})
			require.EqualValues(t, -1, added.RowsAffected())

			c = write(t, store, c, b)
			require.EqualValues(t, []int64{1, 1, 1, 0, 1},
				[]int64{inserted.RowsAffected(), added.RowsAffected(), read.RowsAffected(), none.RowsAffected(), named.RowsAffected()})
			var rows []struct {
				Key   string
				Value int64
			}
			require.NoError(t, read.Decode(&rows))
			require.EqualValues(t, 42, rows[0].Value)
			require.NoError(t, none.Decode(&rows))
			require.Empty(t, rows)
			holds(t, pool, fmt.Sprint("a", i), 42)
			holds(t, pool, fmt.Sprint("b", i), 7)
		}
		require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite, storage.KindWrite, storage.KindWrite}, kinds(t, store))
	})
}

func TestBatch_FailsAsAWhole(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, pool *pgxpool.Pool) {
		store := newStore(t, pool, nil)
		c := claim(t, store, grant(5, "a"))
		mustExec(t, pool, "insert into item values ('x', 1)")
		fails := func(last func(b *postgres.Batch)) error {
			b, _ := batchOf(addToItem, "x", 1)
			last(b)
			_, err := attempt(t.Context(), store, b, c)
			require.Error(t, err)
			holds(t, pool, "x", 1)
			return err
		}

		var affected *postgres.AffectedError
		require.ErrorAs(t, fails(func(b *postgres.Batch) { b.Exec(addToItem, "y", 1).MustAffect(1) }), &affected)
		require.EqualError(t, affected, "postgres: statement 2 of the batch affected 0 rows, must affect 1: "+addToItem)
		require.Equal(t, []int64{2, 0, 1}, []int64{int64(affected.Number), affected.Affected, affected.Want})
		require.ErrorAs(t, fails(func(b *postgres.Batch) { b.Exec("select * from item").Returning().MustAffect(2) }), &affected)
		require.EqualValues(t, 1, affected.Affected)

		err := fails(func(b *postgres.Batch) { b.Exec(insertItem, "x", 1).MustAffect(1) })
		require.ErrorContains(t, err, "postgres: statement 2 of the batch: ")
		require.ErrorContains(t, err, "item_pkey")
		require.ErrorContains(t, err, insertItem)

		var pgErr *pgconn.PgError
		require.ErrorAs(t, fails(func(b *postgres.Batch) { b.Exec("update item set nothing = 1").MustAffect(1) }), &pgErr)
		require.EqualValues(t, len("update item set n"), pgErr.Position, "in the statement, not in what is sent")

		err = fails(func(b *postgres.Batch) { b.Exec("select repeat('x', 4096)").Returning() })
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.ErrorContains(t, err, "more than 4096 bytes")

		require.ErrorContains(t, fails(func(b *postgres.Batch) { b.Exec(addToItem, "x", struct{}{}) }), "postgres: statement 2 of the batch: ")
		err = fails(func(b *postgres.Batch) { b.Exec(addToItem, "x") })
		require.ErrorContains(t, err, "postgres: statement 2 of the batch: ")
		require.Regexp(t, `it has 2 parameters, and 1 arguments were given|supplies 1 parameters, but .* requires 2`, err)
		for _, copies := range []func(b *postgres.Batch){func(b *postgres.Batch) { b.Exec("copy item from stdin") }, func(b *postgres.Batch) { b.Exec("select 1", sends("copy item to stdout")) }} {
			err = fails(copies)
			require.ErrorIs(t, err, fence.ErrInvalid)
			require.ErrorContains(t, err, "postgres: statement 2 of the batch: ")
			require.ErrorContains(t, err, "CopyFrom")
			require.False(t, guard.SafeToRetry(err))
		}
		require.Error(t, fails(func(b *postgres.Batch) { b.Exec("select 1; select 2") }))

		last, _ := batchOf(addToItem, "x", 1)
		c = write(t, store, c, last)
		holds(t, pool, "x", 2)
		require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite}, kinds(t, store))

		txn := begin(t, store, c)
		require.NoError(t, txn.Run(t.Context(), last))
		claimOnly(t, pool, grant(6, "b"))
		_, err = txn.Commit(t.Context(), nil)
		requireRejected(t, err, storage.ReasonStale)
		_, err = attempt(t.Context(), store, last, c)
		requireRejected(t, err, storage.ReasonStale)
		holds(t, pool, "x", 2)
	})
}

// sends is an argument that replaces the SQL of its statement, which is checked before.
type sends string

func (s sends) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return string(s), nil, nil
}

// A statement that ends the transaction keeps the batch from taking effect unfenced: the
// seal notices, and the error says what stays.
func TestBatch_WithACommitOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, raw := range [][]string{{"commit"}, {"commit", "begin"}, {"commit and chain"}, {"rollback", "begin"}} {
		t.Run(strings.Join(raw, " "), func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, nil)
			c := claim(t, store, grant(5, "a"))
			b, _ := batchOf(insertItem, "x", 1)
			for _, sql := range raw {
				b.Exec("select 1", sends(sql))
			}
			b.Exec(insertItem, "y", 1)
			if strings.HasPrefix(raw[0], "commit") {
				failing := *b
				failing.Exec("select 1 / 0")
				_, err := attempt(t.Context(), store, &failing, c)
				require.ErrorIs(t, err, storage.ErrTxEnded)
				mustExec(t, pool, "delete from item")
			}
			_, err := attempt(t.Context(), store, b, c)
			require.Equal(t, []storage.EntryKind{storage.KindClaim}, kinds(t, store), "nothing was sealed")
			require.ErrorIs(t, err, storage.ErrTxEnded)
			next, _ := batchOf(insertItem, "z", 1)
			write(t, store, c, next)
		})
	}
}

func TestBatch_SaysWhichFailed(t *testing.T) {
	t.Parallel()
	_, store := fresh(t, nil)
	c := claim(t, store, grant(5, "a"))
	good, many := inserts, func() *postgres.Batch {
		b := &postgres.Batch{}
		for range 80 {
			b.Exec("select 1")
		}
		return b
	}
	affects, s := batchOf("update item set value = 1 where key = 'missing'")
	s.MustAffect(1)
	for bad, ops := range map[int][]storage.Op[pgx.Tx]{
		1: {good("a"), &postgres.Batch{}},
		2: {good("a"), good("b"), affects},
		3: {good("a"), statement("select 1"), good("b"), affects},
		4: {many(), many(), many(), good("a"), affects, good("b")}, // of a later write
	} {
		txn, err := connect(t, store, c), error(nil)
		for i := 0; i < len(ops) && err == nil; i++ {
			err = txn.Run(t.Context(), ops[i])
		}
		if err == nil {
			_, err = txn.Commit(t.Context(), nil)
		}
		failed := new(storage.OpError)
		require.ErrorAs(t, err, &failed)
		require.Equal(t, bad, failed.Number)
	}
}

func TestBatch_ValidatesItsStatements(t *testing.T) {
	t.Parallel()
	_, store := fresh(t, nil)
	c := claim(t, store, grant(5, "a"))
	many, returning := &postgres.Batch{}, &postgres.Batch{}
	for range 101 {
		many.Exec("select 1")
	}
	for range 17 {
		returning.Exec("select 1").Returning()
	}
	negative, s := batchOf(addToItem, "x", 1)
	s.MustAffect(-1)
	twice, s := batchOf(addToItem, "x", 1)
	s.MustAffect(1).MustAffect(1)
	for _, b := range []*postgres.Batch{{}, many, returning, negative, twice} {
		_, err := attempt(t.Context(), store, b, c)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
	b, s := batchOf("select 1 as one")
	require.ErrorContains(t, s.Decode(new(int)), "not known")
	s.Returning()
	write(t, store, c, b)
	require.ErrorContains(t, s.Decode(&[]struct{ One string }{}), "can't be decoded")
}

func TestBatch_RefusesToEndItsTransaction(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	c := claim(t, store, grant(5, "a"))
	for _, sql := range []string{
		"commit", "COMMIT WORK", "commit and chain", "commit prepared 'x'", "end", "End transaction", "abort", "begin", "begin; select 1", "start transaction",
		"rollback", "rollback;", "rollback work", "rollback transaction and no chain", "rollback prepared 'x'", "prepare transaction 'x'", "prepare/**/transaction'x'",
		" \t\r\n\f\vcommit", ";; commit", "-- a\ncommit", "-- a\rcommit", "--\n--\ncommit", "/* a */commit", "/* /* a */ */ commit", "/* /*/ a */ b */ commit", "/***/commit", "/**//* -- */ -- /*\ncommit",
	} {
		b, _ := batchOf(insertItem, "x", 1)
		b.Exec(sql)
		b.Exec("begin")
		_, err := attempt(t.Context(), store, b, c)
		require.ErrorIs(t, err, fence.ErrInvalid, sql)
		require.ErrorContains(t, err, strings.TrimRight(sql, ";"))
		require.NotErrorIs(t, err, storage.ErrTxEnded)
	}
	holds(t, pool, "x", 0)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	b, _ := batchOf("commit")
	require.ErrorIs(t, b.Run(t.Context(), tx), fence.ErrInvalid)
	require.NoError(t, tx.Rollback(t.Context()))
}

func TestBatch_Once(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	g := newGuard(t, newStore(t, pool, nil))
	mustExec(t, pool, "insert into item values ('x', 40)")
	for range 3 {
		b, added := batchOf(addToItem+" returning value", "x", 2)
		added.MustAffect(1).Returning()
		require.NoError(t, guard.Exec(t.Context(), g, "sku/x", b, guard.Once("order 7", nil)))
		require.EqualValues(t, 1, added.RowsAffected())
		var rows []struct{ Value int }
		require.NoError(t, added.Decode(&rows))
		require.Equal(t, 42, rows[0].Value)
	}
	holds(t, pool, "x", 42)
	other, _ := batchOf(addToItem, "x", 2)
	other.Exec(addToItem, "x", 2)
	require.ErrorContains(t, guard.Exec(t.Context(), g, "sku/x", other, guard.Once("order 7", nil)), "not a batch of 2 statements")
}

// The answer to a batch is lost: whether it took effect is resolved. Its results are lost
// too, but for what MustAffect has made sure of.
func TestBatch_AnswerLost(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted)
	g := newGuard(t, f.store)
	mustExec(t, f.pool, "insert into item values ('x', 0)")
	b, certain := batchOf(addToItem, "x", 1)
	certain.MustAffect(1)
	unknown := b.Exec("select 1 as one").Returning()
	warm, _ := batchOf(addToItem, "x", 0)
	require.NoError(t, guard.Exec(t.Context(), g, "sku/x", warm))
	lost := pgproxy.SwallowReply()
	f.proxy.OnCommit(func(string) *pgproxy.Action { return lost })
	require.NoError(t, guard.Exec(t.Context(), g, "sku/x", b))
	holds(t, f.pool, "x", 1)
	require.EqualValues(t, 1, certain.RowsAffected())
	require.EqualValues(t, -1, unknown.RowsAffected())
	require.ErrorContains(t, unknown.Decode(new(any)), "answer was lost")
}

func TestBatch_SharesWhereItOnlyReadsAndChangesRows(t *testing.T) {
	t.Parallel()
	cases := map[string]bool{
		"select 1": true,
		"-- name: Insert :exec\n\tINSERT into item values ('x', 1)":        true,
		"/* a */ /* b */ with old as (select 1) update item set value = 1": true,
		"(values (1))":                           true,
		"set local search_path = tenant":         false,
		"RESET all":                              false,
		"commit":                                 false,
		"do $$ begin end $$":                     false,
		"lock table item":                        false,
		"selection":                              false,
		"":                                       false,
		"-- select":                              false,
		"/* /* */ select */ set local role none": false,
		"/* /* set */ */ select 1":               true,
		"-- a\rset local role none --\nselect 1": false, // a carriage return ends a comment, too
		"; update item set value = 1":            true,
		"select Set_Config('app.tenant', 'a', true)": false,
	}
	for sql, shares := range cases {
		var b postgres.Batch
		b.Exec("select 1")
		b.Exec(sql)
		require.Equal(t, shares, b.Shares(), sql)
	}
	var b postgres.Batch
	b.Exec("select @a", pgx.NamedArgs{"a": 1})
	require.True(t, b.Shares())
	b.Exec("select 1", ofTenant{})
	require.False(t, b.Shares(), "its context would be another call's")
	require.False(t, new(postgres.Batch).Shares(), "it can't be sent")
}

type ofTenant struct{}

type tenant struct{}

func (ofTenant) RewriteQuery(ctx context.Context, _ *pgx.Conn, sql string, _ []any) (string, []any, error) {
	return sql, []any{ctx.Value(tenant{})}, nil
}

func inserts(key string) *postgres.Batch {
	b, s := batchOf(insertItem, key, 1)
	s.MustAffect(1)
	return b
}

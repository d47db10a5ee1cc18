package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// A statement that begins or ends a transaction is refused before anything is sent, whatever
// precedes its first word.
func TestBatch_RefusesToEndItsTransaction(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
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

// A savepoint of the batch's own can be rolled back, and a statement prepared.
func TestBatch_KeepsItsSavepoints(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	for _, back := range []string{"rollback to s", "ROLLBACK TO SAVEPOINT s", "rollback work to s", "rollback /* a */ transaction to s"} {
		b, _ := batchOf("insert into item values ('x', 1) on conflict (key) do update set value = item.value + 1")
		b.Exec("savepoint s")
		b.Exec("delete from item")
		b.Exec(back)
		b.Exec("release s")
		c = write(t, store, c, b)
	}
	holds(t, pool, "x", 4)
	b, _ := batchOf("prepare plan as select 1")
	b.Exec("deallocate plan")
	write(t, store, c, b)
}

// The server refuses every other way to end the transaction: in a procedure and in a DO block,
// called in each form.
func TestBatch_CodeCannotEndItsTransaction(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, pool *pgxpool.Pool) {
		mustExec(t, pool, "create procedure finish() language plpgsql as 'begin commit; end'")
		mustExec(t, pool, "create procedure undo() language plpgsql as 'begin rollback; end'")
		mustExec(t, pool, "create function finish_within() returns int language plpgsql as 'begin call finish(); return 1; end'")
		store := newStore(t, pool, nil)
		c := claim(t, store, grant(5, "a"))
		for _, sql := range []string{
			"do 'begin commit; end'", "do 'begin rollback; end'", "call finish()", "call undo()", "select finish_within()",
			"do $$ begin execute 'call finish()'; end $$",
		} {
			b, _ := batchOf(insertItem, "x", 1)
			b.Exec(sql)
			_, err := attempt(t.Context(), store, b, c)
			var pgErr *pgconn.PgError
			require.ErrorAs(t, err, &pgErr, sql)
			require.Equal(t, "2D000", pgErr.Code, sql)
			require.NotErrorIs(t, err, storage.ErrTxEnded)
			holds(t, pool, "x", 0)
		}
		last, _ := batchOf(insertItem, "x", 1)
		write(t, store, c, last)
	})
}

package postgres_test

import (
	"strings"
	"testing"

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

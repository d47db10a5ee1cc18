package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// A statement that can't have MustAffect or Returning fails with an error that says which can.
func TestBatch_SaysWhichStatementsCanHaveConditions(t *testing.T) {
	t.Parallel()
	const (
		forMustAffect = "(MustAffect is for an INSERT, UPDATE or DELETE without a WITH that changes rows; a SELECT, or a statement with a RETURNING clause, needs Returning, too)"
		forReturning  = "(Returning is for a SELECT or a statement with a RETURNING clause, without a WITH that changes rows)"
		moves         = "with old as (delete from item returning value) insert into item select 'y', value from old"
	)
	inEachMode(t, func(t *testing.T, pool *pgxpool.Pool) {
		store := newStore(t, pool, nil)
		c := claim(t, store, grant(5, "a"))
		fails := func(s *postgres.Statement, b *postgres.Batch) error {
			_, err := attempt(t.Context(), store, b, c)
			require.Error(t, err)
			return err
		}
		for _, sql := range []string{"update item set value = 1 where key = 'ä' returning key", "select key from item", "create table t ()", moves} {
			b, s := batchOf(sql)
			require.ErrorContains(t, fails(s.MustAffect(1), b), forMustAffect, sql)
		}
		for _, sql := range []string{"update item set value = 1", "create table t ()", moves} {
			b, s := batchOf(sql)
			require.ErrorContains(t, fails(s.MustAffect(1).Returning(), b), forReturning, sql)
		}
		b, s := batchOf("update item set value = 1 returning @key", pgx.NamedArgs{"key": "x"})
		require.ErrorContains(t, fails(s.MustAffect(1), b), forMustAffect)
		b, s = batchOf("update item set value value")
		require.NotContains(t, fails(s.MustAffect(1), b).Error(), "MustAffect")
	})
}

// An error of a statement with named arguments has its position in the SQL that the server has seen.
func TestBatch_PositionWithNamedArguments(t *testing.T) {
	t.Parallel()
	store := newStore(t, newPool(t), nil)
	b, _ := batchOf("update item set value = @value where key = 'xxxxxxxxxx' and nothing", pgx.NamedArgs{"value": 1})
	_, err := attempt(t.Context(), store, b, claim(t, store, grant(5, "a")))
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.EqualValues(t, len("update item set value = $1 where key = 'xxxxxxxxxx' and n"), pgErr.Position)
}

// A semicolon after a statement is no error, with conditions or without.
func TestBatch_IgnoresASemicolonAtTheEnd(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, pool *pgxpool.Pool) {
		store := newStore(t, pool, nil)
		b := &postgres.Batch{}
		b.Exec(insertItem+";", "x", 1)
		b.Exec("update item set value = 2; ;\n").MustAffect(1)
		b.Exec("select key from item;").Returning().MustAffect(1)
		write(t, store, claim(t, store, grant(5, "a")), b)
		holds(t, pool, "x", 2)
	})
}

// Run of a batch in a transaction names the statement that fails, also if pgx finds it before it
// sends any.
func TestBatch_RunNamesTheStatement(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, pool *pgxpool.Pool) {
		for _, bad := range []string{"update item set nothing = 1", "select 1 / 0"} {
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			b, _ := batchOf("select 1")
			b.Exec(bad)
			err = b.Run(t.Context(), tx)
			require.ErrorContains(t, err, "of the batch: ")
			require.ErrorContains(t, err, bad)
			require.NotContains(t, err.Error(), "statement 1")
			require.NoError(t, tx.Rollback(t.Context()))
		}
	})
}

package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// Where no constraint can be deferred, a guarded COMMIT checks a protected table's writes once, after
// the seal. Where one can, it also runs deferred triggers before the seal, and the check with them.
func TestSeal_ChecksProtectedWritesOnceWhereNothingCanBeDeferred(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ddl    string
		checks int
	}{
		"none deferrable": {"create table part (item text references item)", 1},
		"deferrable":      {"create table part (item text references item deferrable)", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, migrated(t), single)
			mustExec(t, pool, c.ddl)
			_, err := postgres.Protect(t.Context(), pool, "", postgres.Protection{Table: "item", ResourceExpr: "'" + resource + "'", Mode: postgres.ProtectEnforce})
			require.NoError(t, err)
			store := newStore(t, pool, nil)
			write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
			holds(t, pool, "x", 1)
			require.Equal(t, c.checks-1, query[int](t, pool, "select fires from fence.pending_write"), "each check but the last is queued again")
		})
	}
}

// A constraint that was made deferrable after the store had looked is checked all the same, and its
// trigger may write: both run after the seal, before the transaction is read only. Once Check has
// looked again, they run before the seal.
func TestSeal_ConstraintThatBecameDeferrableIsChecked(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	mustExec(t, pool, `create table seen (key text, sealed boolean);
		create table part (item text references item deferrable initially deferred);
		create function see() returns trigger language plpgsql as $$ begin
			insert into seen select new.key, sealed = pg_current_xact_id() from fence.resource; return null;
		end $$;
		create constraint trigger see after insert on item deferrable initially deferred for each row execute function see()`)
	_, err := attempt(t.Context(), store, statement("insert into part values ('missing')"), c)
	require.ErrorContains(t, err, "23503")
	c = write(t, store, c, set("x", 1))
	require.NoError(t, store.Check(t.Context()))
	write(t, store, c, set("y", 1))
	require.Equal(t, []string{"x true", "y false"}, column(t, pool, "select key || ' ' || sealed from seen order by key"))
}

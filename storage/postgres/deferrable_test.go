package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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

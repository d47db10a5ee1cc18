package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

const slowTrigger = `create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(3600); return null; end $$;
	create constraint trigger slow after insert on item deferrable initially deferred for each row execute function slow()`

// A deferred trigger runs before the seal: while it works the fence is free, and
// a successor's claim goes through.
func TestSeal_DeferredTriggersRunBeforeIt(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, patient())
	mustExec(t, pool, slowTrigger)
	c := claim(t, store, grant(5, "a"))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	commit := background(func() ([]storage.Claim, error) { return attempt(ctx, store, set("x", 1), c) })
	pid := waiting(t, pool, "PgSleep")
	mustExec(t, pool, "set lock_timeout = 1; select claim_one('"+resource+"', 1, 5, 'a', 77)")
	require.Empty(t, commit)
	mustExec(t, pool, "select pg_cancel_backend($1)", pid)
	require.ErrorContains(t, (<-commit).err, "57014")
	holds(t, pool, "x", 0)
}

func TestSeal_DeferredTriggersAreBounded(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, &postgres.Config{LockTimeout: time.Millisecond, StatementTimeout: time.Second, NetworkTimeout: time.Minute})
	mustExec(t, pool, slowTrigger)
	_, err := attempt(t.Context(), store, set("x", 1), claim(t, store, grant(5, "a")))
	require.ErrorContains(t, err, "statement timeout")
	require.NotErrorAs(t, err, new(*storage.InDoubtError))
	holds(t, pool, "x", 0)
}

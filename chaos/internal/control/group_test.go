package control_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/internal/pgproxy"
)

// A group whose COMMIT took effect without an answer takes effect a second time. One whose
// COMMIT never arrived does not.
func TestGroupRerun_TakesEffectTwice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose *pgproxy.Action
		sold int
	}{
		"the answer is lost": {pgproxy.SwallowReply(), 2},
		"COMMIT is lost":     {pgproxy.SwallowCommit(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, byName(t, "group-rerun"))
			proxy, err := pgproxy.New(w.servers.Postgres)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Close()) })
			w.servers.Postgres = proxy.DSN()
			a := w.newWorker("A")
			sale := a.begin(afterReading)
			proxy.OnCommit(func(string) *pgproxy.Action { return c.lose })
			require.NoError(t, sale.finish())
			require.Equal(t, c.sold, w.sold())
			require.Equal(t, c.sold, w.taken())
		})
	}
}

// Calls that wait share a transaction, also of several resources. One that fails is rolled
// back alone.
func TestGroups_ShareATransaction(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"group-matching", "group-rerun"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, byName(t, name))
			w.exec("create table note (resource text not null, xid xid8 not null default pg_current_xact_id())")
			a := w.newWorker("A")
			failure := errors.New("fails")
			var calls sync.WaitGroup
			call := func(resource string, fails error) {
				calls.Go(func() {
					err := control.Do(w.ctx, a.lock, a.pool, resource, func(ctx context.Context, tx pgx.Tx, _ int64) error {
						_, err := tx.Exec(ctx, "insert into note values ($1)", resource)
						return errors.Join(err, fails)
					})
					assert.ErrorIs(t, err, fails)
				})
			}
			control.Occupied(a.lock, 3, func() {
				call("sku/2", nil)
				call("sku/3", nil)
				call("sku/3", failure)
			}, "sku/2", "sku/3")
			calls.Wait()
			require.Equal(t, 2, w.number("select count(*) from note"))
			require.Equal(t, 1, w.number("select count(distinct xid) from note"))
		})
	}
}

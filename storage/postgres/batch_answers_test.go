package postgres_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
)

func newGuard(t *testing.T, store storage.Store[pgx.Tx]) *guard.Guard[pgx.Tx] {
	t.Helper()
	g, err := guard.New(guardtest.NewLocker(), store, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

// A repeated batch with guard.Once doesn't run, and has the results of the first.
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
	for name, test := range map[string]struct {
		action func() *pgproxy.Action
		took   int64
	}{
		"reply lost": {pgproxy.SwallowReply, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t)
			g := newGuard(t, f.store)
			mustExec(t, f.pool, "insert into item values ('x', 0)")
			b, certain := batchOf(addToItem, "x", 1)
			certain.MustAffect(1)
			unknown := b.Exec("select 1 as one").Returning()
			warm, _ := batchOf(addToItem, "x", 0)
			require.NoError(t, guard.Exec(t.Context(), g, "sku/x", warm))
			var lost atomic.Bool
			f.proxy.OnCommit(func(string) *pgproxy.Action {
				if lost.Swap(true) {
					return nil
				}
				return test.action()
			})
			err := guard.Exec(t.Context(), g, "sku/x", b)
			holds(t, f.pool, "x", test.took)
			if test.took == 0 {
				require.True(t, guard.SafeToRetry(err), "%v", err)
				return
			}
			require.NoError(t, err)
			require.EqualValues(t, 1, certain.RowsAffected())
			require.EqualValues(t, -1, unknown.RowsAffected())
			require.ErrorContains(t, unknown.Decode(new(any)), "answer was lost")
		})
	}
}

// writes counts the writes to its connection.
type writes struct {
	net.Conn
	n *atomic.Int64
}

func (w writes) Write(b []byte) (int, error) {
	w.n.Add(1)
	return w.Conn.Write(b)
}

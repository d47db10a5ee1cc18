package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// interruptions are the points at which a holder can be paused while others work.
var interruptions = []string{"before the begin check", "before the operation", "inside the operation", "before the seal"}

// interrupted runs op in a guarded transaction, with others working at point.
func interrupted(t *testing.T, store *postgres.Store, c storage.Claim, op storage.Op[pgx.Tx], point string, others func()) error {
	at := func(p string) {
		if p == point {
			others()
		}
	}
	at(interruptions[0])
	txn, err := store.Begin(t.Context(), c)
	if err != nil {
		return err
	}
	defer txn.Rollback(t.Context())
	at(interruptions[1])
	err = txn.Run(t.Context(), do(func(ctx context.Context, tx pgx.Tx) error {
		var value int64
		if err := get("stock", &value)(ctx, tx); err != nil {
			return err
		}
		at(interruptions[2])
		return op.Run(ctx, tx)
	}))
	if err != nil {
		return err
	}
	at(interruptions[3])
	_, err = txn.Commit(t.Context(), nil)
	return err
}

// A holder that is superseded at any point changes nothing, and the successor reads the
// data as it was before. The successor claims without evicting, so that the fence rejects
// the holder.
func TestFence_RejectsTheSuperseded(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		for _, point := range interruptions {
			if level != pgx.ReadCommitted && point == interruptions[0] {
				continue // no snapshot yet
			}
			t.Run(point, func(t *testing.T) {
				t.Parallel()
				pool, store := fresh(t, at(level))
				old := write(t, store, claim(t, store, grant(5, "a")), set("stock", 1))
				err := interrupted(t, store, old, set("sold to", 5), point, func() {
					successor := claimOnly(t, pool, grant(6, "b"))
					var stock int64
					write(t, store, successor, get("stock", &stock))
					require.EqualValues(t, 1, stock)
				})
				require.Equal(t, grant(6, "b"), requireRejected(t, err, storage.ReasonStale).Current)
				holds(t, pool, "sold to", 0)
				require.Len(t, recorded(t, store), 1)
			})
		}
	})
}

// Two transactions of one grant: the second one to commit has read outdated data.
func TestFence_RejectsTheOvertakenSibling(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		for _, point := range interruptions[1:] {
			t.Run(point, func(t *testing.T) {
				t.Parallel()
				pool, store := fresh(t, at(level))
				c := claim(t, store, grant(5, "a"))
				err := interrupted(t, store, c, set("loser", 1), point, func() { write(t, store, c, add("stock", 1)) })
				require.ErrorIs(t, err, storage.ErrOvertaken)
				holds(t, pool, "loser", 0)
				c = claim(t, store, c.Grant)
				write(t, store, c, add("stock", 1))
				holds(t, pool, "stock", 2)
			})
		}
	})
}

// unprotected runs sql with the triggers that protect history and fences disabled.
func unprotected(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	triggers := map[string]string{"protect_history": "history", "protect_kept_history": "history", "protect_fence": "resource"}
	for trigger, table := range triggers {
		mustExec(t, pool, "alter table fence."+table+" disable trigger "+trigger)
	}
	mustExec(t, pool, sql, args...)
	for trigger, table := range triggers {
		mustExec(t, pool, "alter table fence."+table+" enable always trigger "+trigger)
	}
}

// The loss may come after the begin check: then the seal notices it.
func TestSeal_NoticesALossAfterTheBeginCheck(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool, store := fresh(t, at(level))
		c := write(t, store, claim(t, store, grant(5, "b")), set("x", 1))
		txn := begin(t, store, c)
		require.NoError(t, txn.Run(t.Context(), set("x", 2)))
		unprotected(t, pool, "delete from fence.resource")
		_, err := txn.Commit(t.Context(), nil)
		requireRejected(t, err, storage.ReasonWentBack)
		holds(t, pool, "x", 1)
	})
}

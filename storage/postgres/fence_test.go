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
				pool := newPool(t)
				store := newStore(t, pool, at(level))
				old := write(t, store, claim(t, store, grant(5, "a")), set("stock", 1))
				err := interrupted(t, store, old, set("sold to", 5), point, func() {
					successor := claimOnly(t, pool, grant(6, "b"))
					var stock int64
					write(t, store, successor, get("stock", &stock))
					require.EqualValues(t, 1, stock)
				})
				var stale *storage.RejectedError
				require.ErrorAs(t, err, &stale)
				require.Equal(t, old.Grant, stale.Grant)
				require.Equal(t, grant(6, "b"), stale.Current)
				require.NoError(t, stale.RecordErr)
				require.False(t, stale.Since.IsZero())
				holds(t, pool, "sold to", 0)
				rejections, err := store.Rejections(t.Context(), resource, 10)
				require.NoError(t, err)
				require.Len(t, rejections, 1)
				require.Equal(t, storage.ReasonStale, rejections[0].Reason)
				require.Equal(t, old.Grant, rejections[0].Grant)
				require.Equal(t, grant(6, "b"), rejections[0].Current)
				require.True(t, stale.Since.Equal(rejections[0].Since))
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
				pool := newPool(t)
				store := newStore(t, pool, at(level))
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

// Two holders with one token, as a restored lock service issues them.
func TestFence_RejectsTheTokenIssuedTwice(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	_, err := store.Claim(t.Context(), storage.Claim{Grant: grant(5, "b")})
	requireRejected(t, err, storage.ReasonCollision)
	forged := c
	forged.Grant.Holder = "b"
	_, err = attempt(t.Context(), store, set("x", 1), forged)
	requireRejected(t, err, storage.ReasonCollision)
	holds(t, pool, "x", 0)
	write(t, store, c, set("x", 2))
}

// With one connection no rejection waits for a second one.
func TestFence_RejectsWithOneConnection(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), single)
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	overtaken := write(t, store, c, set("x", 1))
	_, err := attempt(t.Context(), store, set("x", 2), c)
	require.ErrorIs(t, err, storage.ErrOvertaken)
	claim(t, store, grant(6, "b"))
	_, err = attempt(t.Context(), store, set("x", 2), overtaken)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: grant(5, "a")})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: grant(6, "c")})
	requireRejected(t, err, storage.ReasonCollision)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 1})
	require.NoError(t, err)
	rejections, err := store.Rejections(t.Context(), resource, 10)
	require.NoError(t, err)
	require.Len(t, rejections, 5, "overtaken; stale at the begin check, at the claim and, of the answer that was lost, at the seal; collision")
	noneInUse(t, pool)
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

// A database that lost its newest transactions shows a fence behind what a holder has seen
// committed. That holder's error says so, and not that it is stale.
func TestFence_BehindItsHolderIsNoticed(t *testing.T) {
	t.Parallel()
	const back = "update fence.resource r set (epoch, token, holder, seq, tx, claim_seq, hash) = " +
		"(select c.epoch, c.token, c.holder, e.seq, e.tx, 1, e.hash from fence.history e join fence.history c on c.resource = e.resource and c.seq = e.claim where e.resource = r.id and e.seq = $1)"
	for name, lose := range map[string]func(t *testing.T, pool *pgxpool.Pool, store *postgres.Store){
		"its last write": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			unprotected(t, pool, back, 3)
			unprotected(t, pool, "delete from fence.history where seq > 3")
		},
		"its claim": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			unprotected(t, pool, back, 1)
			unprotected(t, pool, "delete from fence.history where seq > 1")
		},
		"its last write, and a sibling took the position": func(t *testing.T, pool *pgxpool.Pool, store *postgres.Store) {
			unprotected(t, pool, back, 3)
			unprotected(t, pool, "delete from fence.history where seq > 3")
			write(t, store, claim(t, store, grant(5, "b")), set("x", 30))
		},
		"its number alone": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			mustExec(t, pool, "update fence.resource set seq = seq - 1")
		},
		"everything": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			unprotected(t, pool, "delete from fence.resource")
			unprotected(t, pool, "delete from fence.history")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			store := newStore(t, pool, nil)
			claim(t, store, grant(4, "a"))
			c := write(t, store, claim(t, store, grant(5, "b")), set("x", 1))
			c = write(t, store, c, set("x", 2))
			require.EqualValues(t, 4, c.Seq)
			lose(t, pool, store)
			before := query[int64](t, pool, "select value from item")
			_, err := attempt(t.Context(), store, set("x", 3), c)
			requireRejected(t, err, storage.ReasonWentBack)
			holds(t, pool, "x", before)
			rejections, err := store.Rejections(t.Context(), resource, 10)
			require.NoError(t, err)
			require.Len(t, rejections, 1)
			require.Equal(t, storage.ReasonWentBack, rejections[0].Reason)
		})
	}
}

// The loss may come after the begin check: then the seal notices it.
func TestSeal_NoticesALossAfterTheBeginCheck(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool := newPool(t)
		store := newStore(t, pool, at(level))
		c := write(t, store, claim(t, store, grant(5, "b")), set("x", 1))
		txn := begin(t, store, c)
		require.NoError(t, txn.Run(t.Context(), set("x", 2)))
		unprotected(t, pool, "delete from fence.resource")
		_, err := txn.Commit(t.Context(), nil)
		requireRejected(t, err, storage.ReasonWentBack)
		holds(t, pool, "x", 1)
	})
}

package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
)

// A rejected client may stop at that moment: its locks are free as soon as the server has
// rejected it, without a ROLLBACK from the client.
func TestRejection_ReleasesItsLocksAtOnce(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	old := claim(t, store, grant(5, "a"))
	for name, rejected := range map[string]func(conn pgx.Tx) error{
		"claim": func(conn pgx.Tx) error {
			_, err := conn.Exec(t.Context(), "select fence.claim_one('"+resource+"', 1, 4, 'late')")
			return err
		},
		"begin check": func(conn pgx.Tx) error {
			stale := old
			stale.Grant.Token = 4
			_, err := conn.Exec(t.Context(), beginCheckCall(stale))
			return err
		},
		"seal": func(conn pgx.Tx) error {
			_, err := conn.Exec(t.Context(), beginCheckCall(old))
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), "insert into item values ('late', 1)")
			require.NoError(t, err)
			other := old
			other.Grant.Holder = "another holder"
			_, err = conn.Exec(t.Context(), sealCall(other, 99))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			stopped, err := pool.Begin(t.Context()) // and never heard of again
			require.NoError(t, err)
			defer func() { require.NoError(t, stopped.Rollback(t.Context())) }()
			require.ErrorContains(t, rejected(stopped), "rejected")

			other := locked(t, pool, "select from fence.resource where name = $1 for update nowait", resource)
			_, err = other.Exec(t.Context(), "set local lock_timeout = '1ms'; insert into item values ('late', 2)")
			require.NoError(t, err, "the data")
			require.NoError(t, other.Rollback(t.Context()))
		})
	}
}

// A rejection is recorded although the caller's context has ended.
func TestRejection_IsRecordedThoughTheCallersContextHasEnded(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	claimOnly(t, pool, grant(6, "b"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, txn.Run(ended, set("x", 1)), storage.ErrStaleToken)
	require.Equal(t, 1, query[int](t, pool, "select count(*) from fence.rejection"))
}

// The server rejects a seal, and its answer is lost: the rejection is recorded when
// the outcome is resolved.
func TestResolve_RecordsTheRejectionWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	d := f.doubt(t, claim(t, f.store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) error {
		defer claimOnly(t, f.pool, grant(6, "b"))
		return set("x", 1)(ctx, tx)
	}), pgproxy.SwallowReply())
	require.False(t, applied(t, f.store, d))
	rejections := recorded(t, f.store)
	require.Len(t, rejections, 1)
	require.Equal(t, storage.ReasonStale, rejections[0].Reason)
	require.Equal(t, grant(5, "a"), rejections[0].Grant)
	require.Equal(t, grant(6, "b"), rejections[0].Current)
}

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
	pool := newPool(t)
	store := newStore(t, pool, nil)
	old := claim(t, store, grant(5, "a"))
	for name, rejected := range map[string]func(conn pgx.Tx) error{
		"claim": func(conn pgx.Tx) error {
			_, err := conn.Exec(t.Context(), "select claim_one('"+resource+"', 1, 4, 'late', 98)")
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

			other, err := pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, other.Rollback(t.Context())) }()
			_, err = other.Exec(t.Context(), "select from fence.resource where name = $1 for update nowait", resource)
			require.NoError(t, err, "the fence")
			_, err = other.Exec(t.Context(), "set local lock_timeout = '1ms'; insert into item values ('late', 2)")
			require.NoError(t, err, "the data")
		})
	}
}

// A rejection is recorded although the caller's context has ended.
func TestRejection_IsRecordedThoughTheCallersContextHasEnded(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
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
	old := claim(t, f.store, grant(5, "a"))
	txn := begin(t, f.store, old)
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	claimOnly(t, f.pool, grant(6, "b"))
	lost := pgproxy.SwallowReply()
	f.proxy.OnCommit(func(string) *pgproxy.Action { return lost })
	_, err := txn.Commit(t.Context(), nil)
	f.proxy.OnCommit(nil)
	var doubt *storage.InDoubtError
	require.ErrorAs(t, err, &doubt)

	applied, err := f.store.Resolve(t.Context(), doubt.InDoubt)
	require.NoError(t, err)
	require.False(t, applied)
	rejections, err := f.store.Rejections(t.Context(), resource, 10)
	require.NoError(t, err)
	require.Len(t, rejections, 1)
	require.Equal(t, storage.ReasonStale, rejections[0].Reason)
	require.Equal(t, grant(5, "a"), rejections[0].Grant)
	require.Equal(t, grant(6, "b"), rejections[0].Current)
}

package fencekit_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

// stopping is a Guard in the midst of its work: a call runs, another waits behind it,
// a resource is owned and idle, and the process leads an election.
type stopping struct {
	*fencekit.Client
	client     *clientv3.Client
	pool       *pgxpool.Pool
	prefix     string
	leadership fence.Leadership

	goOn            chan struct{}   // lets the running function return
	ctx             context.Context // the running function's
	running, queued chan error      // what those calls return
	released        chan error      // at each release, the end of the leadership, if it has ended
}

func newStopping(t *testing.T) *stopping {
	t.Helper()
	s := &stopping{
		client: etcdserver.Client(t), pool: migratedPool(t),
		goOn: make(chan struct{}), running: make(chan error, 1), queued: make(chan error, 1), released: make(chan error, 2),
	}
	queued := make(chan struct{}, 10)
	observer := &guard.Observer{
		Queued:   func(_ context.Context, _ string, delta int) { queued <- struct{}{} },
		Released: func(fence.Grant, error) { s.released <- s.leadership.Context().Err() },
	}
	cfg := &fencekit.Config{Guard: guard.Config{Observers: []*guard.Observer{observer}}}
	cfg.Locker, s.prefix = newLocker(t, s.client)
	s.Client = newGuard(t, s.pool, cfg)
	election, err := s.Election("jobs")
	require.NoError(t, err)
	s.leadership, err = election.Campaign(t.Context(), "here")
	require.NoError(t, err)
	require.NoError(t, guard.Do(t.Context(), s, "idle", nothing))
	inside := make(chan struct{})
	go func() {
		s.running <- guard.Do(context.Background(), s, "busy", func(ctx context.Context, tx pgx.Tx) error {
			s.ctx = ctx
			close(inside)
			select {
			case <-s.goOn:
				_, err := tx.Exec(ctx, "create table committed ()")
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	<-inside
	for len(queued) > 0 { // a call that needs not wait may be counted too
		<-queued
	}
	go func() { s.queued <- guard.Do(context.Background(), s, "busy", nothing) }()
	<-queued
	return s
}

// keys is how many keys there are in etcd under the test's prefix.
func (s *stopping) keys(t *testing.T) int64 {
	t.Helper()
	resp, err := s.client.Get(t.Context(), s.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	return resp.Count
}

// requireClosed fails unless all is over but for the caller's own: nothing of the Guard's is
// left in etcd, and client and pool work.
func (s *stopping) requireClosed(t *testing.T) {
	t.Helper()
	var lost *fence.LeaseLostError
	require.ErrorAs(t, context.Cause(s.leadership.Context()), &lost)
	require.Equal(t, fence.LossClosed, lost.Reason)
	require.Zero(t, s.keys(t), "the client still works, and nothing is left")
	require.NoError(t, s.pool.Ping(t.Context()))
	require.ErrorIs(t, guard.Do(t.Context(), s, "new", nothing), guard.ErrClosed)
	_, err := s.Locker.Acquire(t.Context(), "new")
	require.ErrorIs(t, err, guard.ErrClosed)
	require.NoError(t, s.Close(t.Context()), "again")
}

// Calls end first, then what is owned is released, then leaderships end: so a call under
// a lease of the caller's is never cut off by the Locker while there is time.
func TestClose_EndsCallsThenReleasesThenEndsLeaderships(t *testing.T) {
	t.Parallel()
	s := newStopping(t)
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()

	require.ErrorIs(t, <-s.queued, guard.ErrClosed, "what waits is turned away")
	require.ErrorIs(t, guard.Do(t.Context(), s, "new", nothing), guard.ErrClosed)
	require.ErrorIs(t, guard.Do(t.Context(), s.UnderLease(s.leadership), "jobs", nothing), guard.ErrClosed)
	require.NoError(t, <-s.released, "what is idle is released, and the process leads")
	require.NoError(t, s.ctx.Err(), "what runs goes on")
	require.Empty(t, closed)
	require.NoError(t, s.leadership.Context().Err())
	require.EqualValues(t, 2, s.keys(t), "of the running call, and of the leader")

	close(s.goOn)
	require.NoError(t, <-s.running)
	require.NoError(t, <-s.released, "the process leads until all is released")
	require.NoError(t, <-closed)
	_, err := s.pool.Exec(t.Context(), "select from committed")
	require.NoError(t, err)
	s.requireClosed(t)
}

// The lock service goes on as well: a resource that was never owned can be acquired.
func TestClose_InAFunctionClosesNothing(t *testing.T) {
	t.Parallel()
	g := newGuard(t, migratedPool(t), nil)
	require.NoError(t, guard.Do(t.Context(), g, "a", func(ctx context.Context, _ pgx.Tx) error {
		require.ErrorIs(t, g.Close(ctx), guard.ErrInvalid)
		return nil
	}))
	require.NoError(t, guard.Do(t.Context(), g, "b", nothing))
}

package e2e_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// deaf is a stream interceptor for a client without streams: neither its watches nor its
// renewals reach etcd.
func deaf(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("cut off")
}

func election(t *testing.T, p *process, name string) *etcd.Election {
	t.Helper()
	e, err := p.locker.Election(name)
	require.NoError(t, err)
	return e
}

func campaign(t *testing.T, e *etcd.Election) fence.Leadership {
	t.Helper()
	led, err := e.Campaign(t.Context(), t.Name())
	require.NoError(t, err)
	return led
}

// writing is a step of a leader's that counts up.
func writing(key string) func(context.Context, guard.Runner[pgx.Tx]) error {
	return func(ctx context.Context, h guard.Runner[pgx.Tx]) error {
		return guard.Do(ctx, h, "jobs", increment(key))
	}
}

// A leader is cut off from etcd and goes on with its work; its lease expires and another one
// is elected. The old leader's later writes are rejected, though it doesn't know that it was
// deposed (G3).
func TestElection_ADeposedLeadersWritesAreRejected(t *testing.T) {
	t.Parallel()
	dsn, pool := counters(t, "jobs")
	endpoint, ctx := etcdserver.Shared(t).Endpoint(), t.Context()
	a := newProcess(t, endpoint, dsn, etcd.Config{TTL: 10 * time.Minute}, nil, grpc.WithChainStreamInterceptor(deaf))
	b := newProcess(t, endpoint, dsn, etcd.Config{}, nil)
	old := campaign(t, election(t, a, "jobs"))
	var elected fence.Leadership
	err := guard.Hold(ctx, a.Guard.UnderLease(old), "jobs", func(ctx context.Context, h guard.Runner[pgx.Tx]) error {
		require.NoError(t, guard.Do(ctx, h, "jobs", increment("jobs")))

		revokeOnce(t, ctx, t.Name())
		elected = campaign(t, election(t, b, "jobs"))
		require.Positive(t, elected.Grant().Compare(old.Grant()))
		require.NoError(t, guard.Hold(t.Context(), b.Guard.UnderLease(elected), "jobs", writing("jobs")))

		require.NoError(t, old.Context().Err(), "the old leader knows that it was deposed: the test is inconclusive")
		return guard.Do(ctx, h, "jobs", increment("jobs"))
	})
	requireStale(t, err, old, elected)
	requireStale(t, guard.Hold(ctx, a.Guard.UnderLease(old), "jobs", writing("jobs")), old, elected)
	requireStale(t, guard.Do(ctx, a.Guard.UnderGrant(old.Grant()), "jobs", increment("jobs")), old, elected)
	require.ErrorIs(t, old.Proclaim(ctx, "still me"), fence.ErrLeaseLost)
	require.EqualValues(t, 2, value(t, pool, "jobs"))

	leader, err := election(t, a, "jobs").Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, fence.Leader{Grant: elected.Grant(), Value: t.Name()}, leader)
	require.NoError(t, guard.Do(ctx, a.Guard.UnderGrant(leader.Grant), "jobs", increment("jobs")), "an order of the leader's, carried out elsewhere")
	require.NoError(t, elected.Resign(ctx))
	require.NoError(t, guard.Hold(ctx, a.Guard.UnderLease(campaign(t, election(t, a, "jobs"))), "jobs", writing("jobs")), "the old leader is elected again")
	require.EqualValues(t, 4, value(t, pool, "jobs"))
}

func revokeOnce(t *testing.T, ctx context.Context, prefix string) {
	t.Helper()
	client := etcdserver.Client(t)
	keys, err := client.Get(ctx, prefix+"/locks/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, keys.Kvs, 1)
	_, err = client.Revoke(ctx, clientv3.LeaseID(keys.Kvs[0].Lease))
	require.NoError(t, err)
}

func requireStale(t *testing.T, err error, old, elected fence.Leadership) {
	t.Helper()
	require.ErrorIs(t, err, guard.ErrStaleToken)
	stale := new(guard.RejectedError)
	require.ErrorAs(t, err, &stale)
	require.Equal(t, old.Grant(), stale.Grant)
	require.Equal(t, elected.Grant(), stale.Current)
}

// Leaders are constantly deposed in mid-work. A leader that reads in one step and writes in
// the next never overwrites another leader's update (G3, G4).
func TestElection_LeadersComeAndGoButNoUpdateIsLost(t *testing.T) {
	t.Parallel()
	dsn, pool := counters(t, "jobs")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var acknowledged, deposed atomic.Int64
	var leaders, revoker sync.WaitGroup
	for range 3 {
		p := newProcess(t, etcdserver.Shared(t).Endpoint(), dsn, etcd.Config{}, nil)
		e := election(t, p, "jobs")
		leaders.Go(func() {
			for range 60 {
				switch err := leadOnce(t, ctx, p, e); {
				case err == nil:
					acknowledged.Add(1)
				case errors.Is(err, guard.ErrStaleToken), errors.Is(err, fence.ErrLeaseLost), errors.Is(err, fence.ErrUnavailable):
					deposed.Add(1)
				default:
					t.Errorf("unexpected: %v", err)
				}
			}
		})
	}
	revoker.Go(func() {
		seen := acknowledged.Load()
		revokeAll(t, ctx, t.Name(), func() { // until a leader has come to the end of its work: that takes any time
			for ; ctx.Err() == nil && acknowledged.Load() == seen; time.Sleep(time.Millisecond) {
			}
			seen = acknowledged.Load()
		})
	})
	leaders.Wait()
	cancel()
	revoker.Wait()
	t.Logf("acknowledged %d, deposed %d", acknowledged.Load(), deposed.Load())
	require.EqualValues(t, acknowledged.Load(), value(t, pool, "jobs"))
	require.Positive(t, acknowledged.Load())
	require.Positive(t, deposed.Load(), "no leader was deposed in mid-work: the test is inconclusive")
}

// leadOnce reads in one transaction and writes in another.
func leadOnce(t *testing.T, ctx context.Context, p *process, e *etcd.Election) error {
	led, err := e.Campaign(ctx, "")
	if err != nil {
		return err
	}
	defer func() {
		if err := led.Resign(ctx); err != nil && !errors.Is(err, fence.ErrUnavailable) {
			t.Errorf("resign: %v", err) // unavailable: its session was lost meanwhile
		}
	}()
	return guard.Hold(ctx, p.Guard.UnderLease(led), "jobs", func(ctx context.Context, h guard.Runner[pgx.Tx]) error {
		var value int64
		if err := guard.Do(ctx, h, "jobs", func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "select value from counter where key = 'jobs'").Scan(&value)
		}); err != nil {
			return err
		}
		return guard.Do(ctx, h, "jobs", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "update counter set value = $1 where key = 'jobs'", value+1)
			return err
		})
	})
}

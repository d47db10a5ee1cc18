package e2e_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// patiently is a context that only a hang exceeds.
func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Two processes with one connection each: neither resolving an unknown outcome, nor an
// eviction, nor recording a rejection waits for a second connection.
func TestPool_OfOneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	dsn, pool := counters(t, "a")
	proxy, err := pgproxy.New(dsn + "&pool_max_conns=1")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	endpoint := etcdserver.Shared(t).Endpoint()
	one := newProcess(t, endpoint, proxy.DSN(), etcd.Config{}, nil)
	other := newProcess(t, endpoint, dsn+"&pool_max_conns=1", etcd.Config{}, nil)
	ctx := patiently(t)

	lost := pgproxy.SwallowReply()
	proxy.OnCommit(func(sql string) *pgproxy.Action {
		if !isSeal(sql) {
			return nil
		}
		return lost
	})
	require.NoError(t, guard.Do(ctx, one.Guard, "a", increment("a")), "its reply is lost, and found")
	require.NoError(t, lost.Wait(ctx))

	begun, resume := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(resume) })
	defer release() // before the pools close, which wait for it
	paused := make(chan error, 1)
	go func() {
		paused <- guard.Do(ctx, one.Guard, "a", func(ctx context.Context, tx pgx.Tx) error {
			if err := increment("a")(ctx, tx); err != nil {
				return err
			}
			close(begun)
			<-resume
			return increment("a")(ctx, tx)
		})
	}()
	awaitMoment(t, begun, paused)
	revokeOnce(t, ctx, t.Name())
	require.NoError(t, guard.Do(ctx, other.Guard, "a", increment("a")), "evicts")
	release()
	err = <-paused
	require.ErrorIs(t, err, guard.ErrStaleToken)
	var rejection *guard.RejectedError
	require.ErrorAs(t, err, &rejection)
	require.NoError(t, rejection.RecordErr)
	require.NoError(t, guard.Do(ctx, one.Guard, "a", increment("a")))
	require.EqualValues(t, 3, value(t, pool, "a"))
	for _, p := range []*process{one, other} {
		require.EqualValues(t, 1, p.pool.Stat().MaxConns())
		awaitIdle(t, p)
	}
}

func isSeal(sql string) bool { return strings.Contains(sql, ".seal") }

// awaitIdle waits until a process uses none: one that broke is closed in the background.
func awaitIdle(t *testing.T, p *process) {
	t.Helper()
	require.Eventually(t, func() bool { return p.pool.Stat().AcquiredConns() == 0 }, time.Minute, time.Millisecond)
}

// awaitMoment waits for a moment in the midst of a call, which doesn't come if the call fails
// before it. The call's error stays where it is.
func awaitMoment[T any](t *testing.T, moment <-chan T, call chan error) {
	t.Helper()
	select {
	case <-moment:
	case err := <-call:
		call <- err
		select {
		case <-moment: // this came first
		default:
			require.FailNow(t, "the call ended too early", "%v", err)
		}
	}
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

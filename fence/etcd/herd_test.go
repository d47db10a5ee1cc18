package etcd

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// morePatient is patient, for what takes many turns.
func morePatient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*etcdtest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// A hundred processes of three waiters each.
func TestHerd_ThreeHundredWaitersGetTheLockInOrder(t *testing.T) {
	t.Parallel()
	const lockers, each = 100, 3
	client, cfg := etcdserver.Client(t), fresh(t)
	ctx := morePatient(t)
	holder := newTestLocker(t, client, cfg)
	held := acquire(t, holder, "r")
	type grant struct {
		locker int
		token  fence.Token
	}
	var (
		waiting sync.WaitGroup
		mu      sync.Mutex
		grants  []grant
		holding sync.Mutex // TryLock only
	)
	for i := range lockers {
		l := newTestLocker(t, client, cfg)
		for range each {
			waiting.Go(func() {
				le, err := l.Acquire(ctx, "r")
				if !holds(t, err == nil, "acquire: %v", err) {
					return
				}
				holds(t, holding.TryLock(), "two hold the lock")
				mu.Lock()
				grants = append(grants, grant{i, le.Grant().Token})
				mu.Unlock()
				holding.Unlock()
				err = le.Release(patient(t))
				holds(t, err == nil, "release: %v", err)
			})
		}
		awaitKeys(t, client, holder.cluster.Keys.Queue("r"), 1+(i+1)*each) // later waiters queue later
	}
	require.Empty(t, grants)
	release(t, held)
	waiting.Wait()
	require.Len(t, grants, lockers*each)
	for n, g := range grants {
		require.Greater(t, g.token, held.Grant().Token)
		require.Equal(t, n/each, g.locker, "in order of arrival")
		if n > 0 {
			require.Greater(t, g.token, grants[n-1].token)
		}
	}
	awaitKeys(t, client, holder.cluster.Keys.Prefix, 0)
}

// The holder dies, and so do all waiters ahead of one: each lease ends before its turn
// would have come.
func TestHerd_TheLastOneGetsTheLockWhenAllBeforeItHaveDied(t *testing.T) {
	t.Parallel()
	const dead = 50
	client, cfg := etcdserver.Client(t), fresh(t)
	ctx, cancel := context.WithCancel(morePatient(t))
	var waiting sync.WaitGroup
	var sessions []*session.Session
	for i := range dead {
		l := newTestLocker(t, client, cfg)
		waiting.Go(func() {
			_, err := l.Acquire(ctx, "r")
			if i > 0 {
				holds(t, err != nil, "a dead one got the lock")
			}
		})
		awaitKeys(t, client, l.cluster.Keys.Queue("r"), i+1)
		sessions = append(sessions, l.sessions.Current())
	}
	last := acquiring(morePatient(t), newTestLocker(t, client, cfg), "r")
	awaitKeys(t, client, cfg.Prefix+"/locks/r/", dead+1)
	for _, s := range slices.Backward(sessions) {
		_, err := client.Revoke(patient(t), s.ID)
		require.NoError(t, err)
	}
	got := <-last
	require.NoError(t, got.err)
	cancel()
	waiting.Wait()
	release(t, got.lease)
	awaitKeys(t, client, cfg.Prefix, 0)
}

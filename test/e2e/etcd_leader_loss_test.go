package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// leaderFaults take the leader of etcd away, and give it back.
var leaderFaults = map[string]struct {
	inject, revert func(context.Context, *etcdserver.Member) error
}{
	"killed": {
		func(_ context.Context, m *etcdserver.Member) error { return m.Kill() },
		func(ctx context.Context, m *etcdserver.Member) error { return m.Restart(ctx) },
	},
	"stopped": {
		func(_ context.Context, m *etcdserver.Member) error { return m.Pause() },
		func(_ context.Context, m *etcdserver.Member) error { return m.Resume() },
	},
	"isolated": {
		func(_ context.Context, m *etcdserver.Member) error { return m.Isolate() },
		func(_ context.Context, m *etcdserver.Member) error { return m.Rejoin() },
	},
}

// The leader of three members fails under load and comes back. Processes that reach the other
// members go on, and get true outcomes. A process in mid-operation that reached only the
// leader is rejected once another has had the lock, and goes on afterwards.
func TestLeaderLoss_UnderLoadLosesNoUpdate(t *testing.T) {
	t.Parallel()
	for name, fault := range leaderFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, pool := counters(t, "a", "b", "c")
			ctx := patiently(t)
			_, err := pool.Exec(ctx, "create table ballast (s text)")
			require.NoError(t, err)
			cluster, err := etcdserver.StartCluster(ctx, 3, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, cluster.Stop(context.Background())) })
			old, err := cluster.Leader(ctx)
			require.NoError(t, err)
			lockCfg := etcd.Config{TTL: 3 * time.Second, RequestTimeout: time.Second}
			near := newProcess(t, old.Endpoint(), dsn, lockCfg, nil)

			working, stop := context.WithCancel(ctx)
			l := newLedger()
			var others []*process
			var workers sync.WaitGroup
			for n := range 2 {
				p := newProcess(t, strings.Join(cluster.Endpoints(), ","), dsn, lockCfg, &guard.Config{MaxHold: 5 * time.Millisecond})
				others = append(others, p)
				for _, resource := range []string{"b", "c"} {
					workers.Go(func() { l.run(working, p, fmt.Sprint(n, resource), resource) })
				}
			}
			goesOn := func() {
				t.Helper()
				before := l.progress.Load()
				require.Eventually(t, func() bool { return l.progress.Load() > before+5 }, time.Minute, time.Millisecond, "it doesn't go on")
			}
			goesOn()
			begun, resume := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(resume) })
			defer release() // before the pools close, which wait for it
			overtaken := make(chan error, 1)
			go func() { overtaken <- untilInside(ctx, near, begun, resume) }()
			select {
			case <-begun:
			case err := <-overtaken:
				require.FailNow(t, "it never began", "%v", err)
			}

			require.NoError(t, fault.inject(ctx, old))
			_, err = cluster.LeaderAfter(ctx, old)
			require.NoError(t, err)
			goesOn()
			require.Eventually(t, func() bool { return guard.Do(ctx, others[0].Guard, "a", increment("a")) == nil }, time.Minute, time.Millisecond)
			release()
			require.ErrorIs(t, <-overtaken, guard.ErrStaleToken)
			require.NoError(t, fault.revert(ctx, old))
			goesOn()
			require.Eventually(t, func() bool { return guard.Do(ctx, near.Guard, "a", increment("a")) == nil }, time.Minute, time.Millisecond)

			stop()
			workers.Wait()
			l.check(t, ctx, pool, []string{"b", "c"})
			require.EqualValues(t, 2, value(t, pool, "a"))
		})
	}
}

// untilInside adds one to counter a, and waits for resume in mid-transaction. It retries until
// it has reached that point.
func untilInside(ctx context.Context, p *process, begun chan<- struct{}, resume <-chan struct{}) (err error) {
	for inside := false; !inside && ctx.Err() == nil; {
		err = guard.Do(ctx, p.Guard, "a", func(ctx context.Context, tx pgx.Tx) error {
			inside = true
			close(begun)
			<-resume
			return increment("a")(ctx, tx)
		})
	}
	return err
}

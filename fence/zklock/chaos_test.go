package zklock

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/sales"
	"github.com/fencekit/fencekit/internal/test/testenv/zookeeperserver"
)

const serverVariable = "ZKLOCK_TEST_SERVER"

// Workers are paused beyond their session, and killed. The lock alone loses sales.
func TestChaos_TheFenceHoldsWhereTheLockAloneBreaks(t *testing.T) {
	t.Parallel()
	require.NoError(t, os.Setenv(serverVariable, server(t).Addr())) // for workers alone
	sales.Test(t, ofWorker)
}

func ofWorker(pool *pgxpool.Pool) (fence.Locker, error) {
	s := new(Session)
	c, _, err := zk.Connect([]string{os.Getenv(serverVariable)}, 2*time.Second, zk.WithDialer(s.Dial), zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	return New(c, &Config{Session: s, Root: "/" + pool.Config().ConnConfig.Database, TTL: time.Second})
}

// oracle is what the processes of a test know of a resource together.
type oracle struct {
	mu   sync.Mutex
	last fence.Lease // nil once its holder has ended its work
	top  fence.Token
}

// begin fails if another holder may still work, or if a later one has worked. One whose time is over begins nothing.
func (o *oracle) begin(t testing.TB, le fence.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if le.Err() != nil {
		return
	}
	if o.last != nil && o.last.Err() == nil {
		t.Errorf("%v was granted, and %v is held", le.Grant(), o.last.Grant())
	}
	if le.Grant().Token <= o.top {
		t.Errorf("%v was granted after the token %d", le.Grant(), o.top)
	}
	o.last, o.top = le, le.Grant().Token
}

func (o *oracle) end(le fence.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == le {
		o.last = nil
	}
}

// Three servers lose their leader, which is killed, or stopped until another leads. A follower that is cut off serves
// reads, and renews nothing.
func TestEnsemble_LeasesNeverOverlap(t *testing.T) {
	t.Parallel()
	all, err := zookeeperserver.StartEnsemble(patient(t), 3, settings, "initLimit=30\nsyncLimit=5")
	require.NoError(t, err)
	var addrs []string
	for _, s := range all {
		addrs = append(addrs, s.Addr())
		t.Cleanup(func() { require.NoError(t, s.Stop(patient(t))) })
	}
	ctx, stop := context.WithCancel(patient(t))
	var (
		working sync.WaitGroup
		oracles [2]oracle
		done    [6]atomic.Int64
	)
	for i := range done {
		c, session := connect(t, 4*time.Second, addrs...)
		l := locker(t, c, Config{Session: session, TTL: 2 * time.Second})
		o, resource := &oracles[i%2], []string{"a", "b"}[i%2]
		working.Go(func() {
			for ctx.Err() == nil {
				le, err := l.Acquire(ctx, resource)
				if err != nil {
					continue
				}
				o.begin(t, le)
				time.Sleep(10 * time.Millisecond)
				o.end(le)
				_ = le.Release(ctx)
				done[i].Add(1)
			}
		})
	}
	defer working.Wait()
	defer stop()
	progress := func() {
		t.Helper()
		for i := range done {
			before := done[i].Load()
			until(t, func() bool { return done[i].Load() > before+2 })
		}
	}
	leader := func() (leader, follower, other *zookeeperserver.Server) {
		until(t, func() bool {
			leader, follower, other = nil, nil, nil
			for _, s := range all {
				switch mode, _ := s.Mode(patient(t)); {
				case mode == "leader":
					leader = s
				case mode == "follower" && follower == nil:
					follower = s
				case mode == "follower":
					other = s
				}
			}
			return leader != nil && other != nil
		})
		return leader, follower, other
	}
	progress()
	lead, follower, other := leader()
	c, session := connect(t, time.Minute, follower.Addr())
	held := locker(t, c, Config{Session: session, TTL: 3 * time.Second})
	_, err = held.Acquire(ctx, "held")
	require.NoError(t, err)
	_, renew := held.Owned()
	require.NoError(t, errors.Join(lead.Pause(), other.Pause()))
	require.Error(t, renew[0](), "a follower alone has renewed a lease")
	require.NoError(t, other.Resume())
	progress()
	require.NoError(t, lead.Resume())
	lead, _, _ = leader()
	progress()
	require.NoError(t, lead.Kill())
	progress()
	require.NoError(t, lead.Restart(ctx))
	progress()
}

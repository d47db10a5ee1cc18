package zklock

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
	"github.com/fencekit/fencekit/fence/internal/keylock/servicetest"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/testenv/zookeeperserver"
)

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const settings = "tickTime=500\nmaxSessionTimeout=300000\nmaxClientCnxns=0"

func server(t testing.TB, more ...string) *zookeeperserver.Server {
	s, err := zookeeperserver.Start(patient(t), append(more, settings)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(patient(t))) })
	return s
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func connect(t testing.TB, timeout time.Duration, servers ...string) (*zk.Conn, *Session) {
	s := new(Session)
	c, _, err := zk.Connect(servers, timeout, zk.WithDialer(s.Dial), zk.WithLogger(quiet{}))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, s
}

func locker(t testing.TB, c *zk.Conn, cfg Config) *Locker {
	l, err := New(c, &cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(patient(t)) })
	return l
}

func serviceOf(c *zk.Conn, s *Session) *service {
	return newService(c, s, "/fencekit", zk.WorldACL(zk.PermAll))
}

// expire deletes the nodes of a resource, as the end of their sessions does.
func expire(c *zk.Conn, resource string) error {
	s := serviceOf(c, nil)
	names, _, err := s.queue(resource)
	for _, name := range names {
		if err := c.Delete(s.dir(resource)+"/"+name, -1); err != nil {
			return err
		}
	}
	return err
}

func TestService_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	addr := server(t).Addr()
	a, b := serviceOf(connect(t, 3*time.Minute, addr)), serviceOf(connect(t, 3*time.Minute, addr))
	require.NoError(t, servicetest.Check(patient(t), servicetest.Harness{
		A: a, B: b, Resource: "r",
		Expire: func(_ context.Context, resource string) error { return expire(a.client, resource) },
	}))
}

func TestContract(t *testing.T) { guardtest.TestLocker(t, harness(t, 10*time.Millisecond)) }

func BenchmarkLocker(b *testing.B) { guardtest.BenchmarkLocker(b, harness(b, 0)) }

func harness(t testing.TB, poll time.Duration) guardtest.LockerHarness {
	s := server(t)
	operator, _ := connect(t, time.Minute, s.Addr())
	return guardtest.LockerHarness{
		Ordered: true,
		New: func(testing.TB) guardtest.ClosableLocker {
			c, session := connect(t, 2*time.Minute, s.Addr())
			l, err := New(c, &Config{Session: session, TTL: time.Minute, PollInterval: poll})
			require.NoError(t, err)
			return l
		},
		Lose: func(t testing.TB, l guardtest.ClosableLocker) {
			requests, renew := l.(*Locker).Owned()
			for i, r := range requests {
				require.NoError(t, expireOwn(operator, r))
				require.ErrorIs(t, renew[i](), fence.ErrLeaseLost)
			}
		},
		MissDeadline: func(_ testing.TB, held fence.Lease) { keylock.MissDeadline(held) },
		Restart:      func(t testing.TB) { require.NoError(t, s.Restart(patient(t))) },
	}
}

// expireOwn deletes the request's node.
func expireOwn(c *zk.Conn, r keylock.Request) error {
	s := serviceOf(c, nil)
	names, _, err := s.queue(r.Resource)
	if err != nil {
		return err
	}
	return c.Delete(s.dir(r.Resource)+"/"+names[find(names, r)], -1)
}

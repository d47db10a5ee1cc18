package zklock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
	"github.com/fencekit/fencekit/fence/internal/keylock/servicetest"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/sales"
	"github.com/fencekit/fencekit/internal/test/testenv/process"
	"github.com/fencekit/fencekit/internal/test/testenv/zookeeperserver"
)

func TestMain(m *testing.M) { sales.Main(m, ofWorker) }

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const settings = "tickTime=200\nmaxSessionTimeout=9000000\nmaxClientCnxns=0\n"

func server(t testing.TB, more ...string) *zookeeperserver.Server {
	s, err := zookeeperserver.Start(patient(t), append([]string{settings}, more...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(patient(t))) })
	return s
}

var started = process.Shared(func(ctx context.Context) (*zookeeperserver.Server, error) {
	return zookeeperserver.Start(ctx, settings, "-Dzookeeper.enforceQuota=true", "-Dznode.container.checkIntervalMs=20")
})

// shared is a server that no test stops.
func shared(t testing.TB) string {
	s, err := started()
	require.NoError(t, err)
	return s.Addr()
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

var roots sync.Map // of tests, so that no other gets the address of one

// rootOf is of this test and run alone.
func rootOf(t testing.TB) string {
	roots.Store(t, true)
	return fmt.Sprintf("/%p", t)
}

func serviceOf(t testing.TB, c *zk.Conn, s *Session) *service {
	return newService(c, s, rootOf(t), zk.WorldACL(zk.PermAll))
}

func request(holder string) keylock.Request {
	return keylock.Request{Resource: "r", Process: holder, Holder: holder + "-1", TTL: time.Second, Mark: time.Second}
}

// expire deletes the nodes of a resource, as the end of their sessions does.
func (s *service) expire(resource string) error {
	names, _, err := s.queue(resource)
	for _, name := range names {
		err = errors.Join(err, s.client.Delete(s.dir(resource)+"/"+name, -1))
	}
	return err
}

func TestService_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	a, b := open(t, shared(t), time.Hour), open(t, shared(t), time.Hour)
	require.NoError(t, servicetest.Check(patient(t), servicetest.Harness{
		A: a, B: b, Resource: "r", Expire: func(_ context.Context, resource string) error { return a.expire(resource) },
	}))
}

func TestContract(t *testing.T) { guardtest.TestLocker(t, harness(t, 10*time.Millisecond)) }

func BenchmarkLocker(b *testing.B) { guardtest.BenchmarkLocker(b, harness(b, 0)) }

func harness(t testing.TB, poll time.Duration) guardtest.LockerHarness {
	s := server(t)
	operator := newService(first(connect(t, time.Minute, s.Addr())), nil, "/fencekit", nil)
	var mu sync.Mutex
	clients := []*zk.Conn{operator.client}
	return guardtest.LockerHarness{
		Ordered: true,
		New: func(testing.TB) guardtest.ClosableLocker {
			c, session := connect(t, 2*time.Minute, s.Addr())
			_, _, err := c.Exists("/") // its goroutines are there, and no leak
			require.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			clients = append(clients, c)
			until(t, func() bool { // each client reads
				stacks := make([]byte, 1<<22)
				return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), ".(*beginning).Read(") >= len(clients)
			})
			l, err := New(c, &Config{Session: session, TTL: time.Minute, PollInterval: poll})
			require.NoError(t, err)
			return l
		},
		Lose: func(t testing.TB, l guardtest.ClosableLocker) {
			requests, renew := l.(*Locker).Owned()
			for i, r := range requests {
				names, _, err := operator.queue(r.Resource)
				require.NoError(t, err)
				require.NoError(t, operator.client.Delete(operator.dir(r.Resource)+"/"+names[find(names, r)], -1))
				require.ErrorIs(t, renew[i](), fence.ErrLeaseLost)
			}
		},
		MissDeadline: func(_ testing.TB, held fence.Lease) { keylock.MissDeadline(held) },
		Restart: func(t testing.TB) {
			require.NoError(t, s.Restart(patient(t)))
			for _, c := range clients { // their new goroutines are no leak either
				until(t, func() bool {
					_, _, err := c.Exists("/")
					return err == nil
				})
			}
		},
	}
}

func first[A, B any](a A, _ B) A { return a }

// open is serviceOf a client of its own.
func open(t testing.TB, addr string, timeout time.Duration) *service {
	c, s := connect(t, timeout, addr)
	return serviceOf(t, c, s)
}

func acquire(t testing.TB, s *service, r keylock.Request) fence.Token {
	token, err := s.Acquire(patient(t), r)
	require.NoError(t, err)
	return token
}

func until(t testing.TB, what func() bool) {
	t.Helper()
	require.Eventually(t, what, 30*time.Second, 5*time.Millisecond)
}

// nodes are those in the queue of request's resource.
func nodes(t testing.TB, s *service) []string {
	names, _, err := s.queue("r")
	require.NoError(t, err)
	return names
}

func link(t testing.TB, addr string) *netfault.Link {
	l, err := netfault.New(addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// The answer to the request that makes the node is lost with its connection. Asked again, there is one node.
func TestAcquire_FindsTheNodeOfALostAnswer(t *testing.T) {
	t.Parallel()
	through, operator, r := link(t, shared(t)), open(t, shared(t), time.Minute), request("a")
	s := open(t, through.Addr(), time.Minute)
	require.NoError(t, s.Raise(patient(t), "r", 1)) // so that the directory is there
	for _, then := range []func() error{func() error { acquire(t, s, r); return nil }, func() error { return s.Release(patient(t), r) }} {
		heal, lost := through.Cut(netfault.ToClient), make(chan error)
		go func() {
			_, err := s.Acquire(context.Background(), r)
			lost <- err
		}()
		until(t, func() bool { return len(nodes(t, operator)) == 1 })
		through.Reset()
		heal()
		require.Error(t, <-lost)
		made := nodes(t, operator)
		require.NoError(t, then())
		require.Subset(t, made, nodes(t, operator))
		require.NoError(t, s.Release(patient(t), r))
		require.Empty(t, nodes(t, operator))
	}
}

// The write that makes the first of the queue its holder fails. Its node isn't forgotten.
func TestAcquire_KeepsTheNodeWhenAWriteFails(t *testing.T) {
	t.Parallel()
	s, a, b := open(t, shared(t), time.Minute), request("a"), request("b")
	acquire(t, s, a)
	_, err := s.Acquire(patient(t), b)
	require.ErrorIs(t, err, fence.ErrLocked)
	_, err = s.client.SetACL(s.dir("r")+"/"+nodes(t, s)[1], zk.WorldACL(zk.PermRead), -1)
	require.NoError(t, err)
	require.NoError(t, s.Release(patient(t), a))
	_, err = s.Acquire(patient(t), b)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NoError(t, s.Release(patient(t), b))
	require.Empty(t, nodes(t, s))
}

// A request reaches the server when the call and its release have been given up. Its node goes nevertheless.
func TestRelease_GetsWhatIsMadeLater(t *testing.T) {
	t.Parallel()
	through := link(t, shared(t))
	c, session := connect(t, time.Hour, through.Addr())
	l := locker(t, c, Config{Session: session, Root: rootOf(t), TTL: time.Second})
	require.NoError(t, l.Raise(patient(t), fence.Grant{Resource: "r", Epoch: 1, Token: 1, Holder: "h"})) // so that the directory is there
	heal := through.Cut(netfault.ToServer)
	ctx, cancel := context.WithTimeout(patient(t), 100*time.Millisecond)
	defer cancel()
	_, err := l.Acquire(ctx, "r")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	operator := newService(first(connect(t, time.Hour, shared(t))), nil, rootOf(t), nil)
	time.AfterFunc(2500*time.Millisecond, heal) // when a key that expires would be given up
	until(t, func() bool {
		_, stat, err := operator.client.Get(operator.dir("r"))
		require.NoError(t, err)
		return stat.Cversion > 1 && len(nodes(t, operator)) == 0
	})
}

// A session is over: all leases of the client are lost before others have the resources, and the client goes on with a
// new session.
func TestSession_AllLeasesEndWithIt(t *testing.T) {
	t.Parallel()
	through := link(t, shared(t))
	c, session := connect(t, 2*time.Second, through.Addr())
	cfg := Config{Session: session, Root: rootOf(t), TTL: time.Second}
	l := locker(t, c, cfg)
	other, session := connect(t, time.Minute, shared(t))
	cfg.Session = session
	next, resources := locker(t, other, cfg), []string{"r", "s"}
	held, err := l.TryAcquireAll(patient(t), resources...)
	require.NoError(t, err)
	before, heal := c.SessionID(), through.Cut(netfault.ToServer, netfault.ToClient)
	for i, r := range resources {
		got, err := next.Acquire(patient(t), r)
		require.NoError(t, err)
		require.ErrorIs(t, held[i].Err(), fence.ErrLeaseLost)
		require.Greater(t, got.Grant().Token, held[i].Grant().Token)
		require.NoError(t, got.Release(patient(t)))
	}
	heal()
	anew, err := l.Acquire(patient(t), "r")
	require.NoError(t, err)
	require.NotEqual(t, before, c.SessionID())
	require.Greater(t, anew.Grant().Token, held[0].Grant().Token)
}

// The node has the same name, and another session's life.
func TestRenew_IsOfTheOwnSession(t *testing.T) {
	t.Parallel()
	s, other, r := open(t, shared(t), time.Minute), open(t, shared(t), time.Minute), request("a")
	require.NoError(t, s.Raise(patient(t), "r", 1)) // so that the directory stays
	token := acquire(t, s, r)
	node := s.dir("r") + "/" + nodes(t, s)[0]
	require.NoError(t, other.expire("r"))
	_, err := other.client.Create(node, nil, zk.FlagEphemeral, s.acl)
	require.NoError(t, err)
	renewed, err := s.Renew(patient(t), r, token)
	require.NoError(t, err)
	require.False(t, renewed)
}

// The server counts on below zero.
func TestQueue_GoesOnWhenTheNumberOverflows(t *testing.T) {
	t.Parallel()
	s := open(t, shared(t), time.Minute)
	require.NoError(t, s.Raise(patient(t), "r", 1)) // so that the directory is there
	want := []string{"x,x-1,2147483647", "y,y-1,-2147483648", "z,z-1,-2147483647"}
	for _, name := range want {
		_, err := s.client.Create(s.dir("r")+"/"+name, nil, zk.FlagEphemeral, s.acl)
		require.NoError(t, err)
	}
	require.Equal(t, want, nodes(t, s))
}

// Names that are paths, or that ZooKeeper doesn't allow.
func TestResource_MayHaveAnyName(t *testing.T) {
	t.Parallel()
	c, session := connect(t, time.Hour, shared(t))
	l := locker(t, c, Config{Session: session, Root: rootOf(t) + "/name", TTL: time.Minute})
	names := []string{"a/b", "/", "//", ".", "..", "a/../b", "%2F", "a,b", "raised,9", "\u00a0", "\U0010ffff", strings.Repeat("%", fence.MaxResourceLen)}
	held, err := l.TryAcquireAll(patient(t), names...)
	require.NoError(t, err)
	require.Len(t, held, len(names), "no two are one")
}

// The server deletes empty directories while calls use them, and in the end all but those that are raised.
func TestDirectories_VanishWhenEmpty(t *testing.T) {
	t.Parallel()
	s := open(t, shared(t), time.Minute)
	require.NoError(t, s.Raise(patient(t), "raised", 1000))
	for range 50 {
		acquire(t, s, request("a"))
		require.NoError(t, s.Release(patient(t), request("a")))
		require.NoError(t, s.Check(patient(t), keylock.Request{Resource: "\ncheck", Holder: "check", TTL: time.Second}))
	}
	until(t, func() bool {
		left, _, err := s.client.Children(s.root)
		return err == nil && len(left) == 1 && left[0] == "lock-raised"
	})
}

// The server is stopped, and the session lasts for an hour.
func TestWatch_EndsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	server := server(t)
	s := open(t, server.Addr(), time.Hour)
	acquire(t, s, request("a"))
	require.NoError(t, server.Pause())
	ctx, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	s.Watch(ctx, request("a"), func() {})
	require.NoError(t, server.Resume())
}

// The next poll is minutes away: the watch wakes the next in the queue, and again behind one that gives up.
func TestWatch_WakesTheNext(t *testing.T) {
	t.Parallel()
	var calls [3]struct {
		l      *Locker
		leased chan fence.Lease
		cancel func()
	}
	operator := newService(first(connect(t, time.Hour, shared(t))), nil, rootOf(t), nil)
	for i := range calls {
		c, session := connect(t, 2*time.Hour, shared(t))
		c1 := &calls[i]
		c1.l, c1.leased = locker(t, c, Config{Session: session, Root: rootOf(t), TTL: time.Hour, PollInterval: 6 * time.Minute}), make(chan fence.Lease, 1)
		var ctx context.Context
		ctx, c1.cancel = context.WithCancel(patient(t))
		go func() {
			if le, err := c1.l.Acquire(ctx, "r"); err == nil {
				c1.leased <- le
			}
		}()
		until(t, func() bool { return len(nodes(t, operator)) == i+1 })
	}
	held := <-calls[0].leased
	calls[1].cancel()
	until(t, func() bool { return len(nodes(t, operator)) == 2 })
	require.NoError(t, held.Release(patient(t)))
	<-calls[2].leased
}

package zklock

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/memory"
)

// requireRefused has Check and both ways to acquire say why.
func requireRefused(t testing.TB, l *Locker, reason fence.UnavailableReason, again bool, text string) {
	t.Helper()
	_, try := l.TryAcquire(patient(t), "r")
	_, wait := l.Acquire(patient(t), "r")
	for _, err := range []error{l.Check(patient(t)), try, wait} {
		away := new(fence.UnavailableError)
		require.ErrorAs(t, err, &away)
		require.Equal(t, reason, away.Reason, "%v", err)
		require.ErrorContains(t, err, text)
		require.Equal(t, again, guard.SafeToRetry(err))
	}
}

func TestRefusal_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	owner := zk.DigestACL(zk.PermAll, "user", "password")
	for what, test := range map[string]struct {
		cfg    Config
		cause  func(c *zk.Conn, root string) error // made by an operator
		reason fence.UnavailableReason
		text   string
	}{
		"denied": {Config{}, func(c *zk.Conn, root string) error { return err(c.Create(root, nil, 0, owner)) }, fence.Denied, "the rights to create"},
		"acl":    {Config{ACL: zk.AuthACL(zk.PermAll)}, func(*zk.Conn, string) error { return nil }, fence.Denied, "correct Config.ACL"},
		"quota": {Config{}, func(c *zk.Conn, root string) error {
			quota := "/zookeeper/quota" + root
			for _, path := range []string{root, quota, quota + "/zookeeper_stats"} {
				if err := err(c.Create(path, nil, 0, zk.WorldACL(zk.PermAll))); err != nil {
					return err
				}
			}
			return err(c.Create(quota+"/zookeeper_limits", []byte("count=-1,bytes=-1,countHardLimit=2"), 0, zk.WorldACL(zk.PermAll)))
		}, fence.NoSpace, "raise the quota"},
		"short":   {Config{TTL: 31 * time.Second}, func(*zk.Conn, string) error { return nil }, fence.Limited, "a session of 1m0s, less than twice the TTL of 31s"},
		"another": {Config{Session: new(Session)}, func(*zk.Conn, string) error { return nil }, fence.Limited, "connect with zk.WithDialer(session.Dial)"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			operator, _ := connect(t, time.Minute, shared(t))
			c, session := connect(t, time.Minute, shared(t))
			test.cfg.Root = rootOf(t)
			if test.cfg.Session == nil {
				test.cfg.Session = session
			}
			require.NoError(t, test.cause(operator, test.cfg.Root))
			requireRefused(t, locker(t, c, test.cfg), test.reason, false, test.text)
		})
	}
}

func err(_ string, err error) error { return err }

// The server grants less than the client has asked for, and says so to the client alone.
func TestSession_TheGrantedTimeoutBoundsTheTTL(t *testing.T) {
	t.Parallel()
	s := server(t, "maxSessionTimeout=4000")
	c, session := connect(t, time.Minute, s.Addr())
	requireRefused(t, locker(t, c, Config{Session: session, TTL: 2001 * time.Millisecond}), fence.Limited, false, "a session of 4s")
	l := locker(t, c, Config{Session: session, TTL: 2 * time.Second})
	held, err := l.Acquire(patient(t), "r")
	require.NoError(t, err)
	_, renew := l.Owned()
	session.granted.Store(int64(3 * time.Second)) // by another server, whose settings differ
	require.ErrorContains(t, renew[0](), "a session of 3s")
	require.NoError(t, held.Release(patient(t)))
}

// A server that accepts connections and never answers keeps a client for longer than others would take it.
func TestSession_NoServerIsWaitedForForLong(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	c, err := new(Session).Dial("tcp", silent.Addr().String(), 10*time.Millisecond)
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	_, err = c.Read(make([]byte, 4))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// ZooKeeper comes back with older data. Its clients are told that they need a connection anew, and tokens go on above
// the fence's.
func TestRaise_TokensGoOnAfterARestore(t *testing.T) {
	t.Parallel()
	s, store := server(t), memory.NewStore()
	sell := func(ctx context.Context, tx *memory.Tx) error {
		sold, err := tx.Get("sold")
		if err != nil {
			return err
		}
		return tx.Set("sold", sold+"x")
	}
	open := func() (*Locker, *guard.Guard[*memory.Tx]) {
		c, session := connect(t, time.Minute, s.Addr())
		l := locker(t, c, Config{Session: session, TTL: time.Second})
		g, err := guard.New(l, store, &guard.Config{KeepFor: -1})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(patient(t))) })
		return l, g
	}
	l, g := open()
	skus := []string{"sku/42", "sku/43"}
	for range 3 {
		require.NoError(t, guard.Do(patient(t), g, skus, sell))
	}
	require.NoError(t, s.WhileStopped(patient(t), func() error { return os.RemoveAll(s.Dir().Path("home/data/version-2")) }))
	until(t, func() bool { return l.session.wentBack.Load() })
	requireRefused(t, l, fence.WentBack, false, "make a new client and Locker")
	var both sync.WaitGroup
	for range 2 { // of two processes
		_, g := open()
		both.Go(func() {
			if err := guard.Do(patient(t), g, skus, sell, guard.Retryable()); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	require.Equal(t, "xxxxx", store.Read("sold"))
	rejections, err := store.Rejections(patient(t), "sku/42", 10)
	require.NoError(t, err)
	require.NotEmpty(t, rejections)
}

func TestRaise_NeverLowers(t *testing.T) {
	t.Parallel()
	s := open(t, shared(t), time.Minute)
	for _, above := range []fence.Token{5, fence.MaxToken / 2, 7} {
		require.NoError(t, s.Raise(patient(t), "r", above))
	}
	require.Greater(t, acquire(t, s, request("a")), fence.MaxToken/2)
}

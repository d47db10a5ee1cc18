package natslock

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
	"github.com/fencekit/fencekit/fence/internal/keylock/servicetest"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/test/sales"
)

func TestMain(m *testing.M) { sales.Main(m, ofWorker) }

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// natsd is a server in this process, which keeps its port and its data when it is stopped and started again.
type natsd struct {
	*server.Server
	options server.Options
}

func start(t testing.TB, o server.Options) *natsd {
	d := prepare(t, o)
	d.run(t)
	d.ready(t)
	return d
}

func prepare(t testing.TB, o server.Options) *natsd {
	o.Host, o.Port, o.JetStream, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, t.TempDir(), true, true
	d := &natsd{options: o}
	t.Cleanup(func() { d.stop() })
	return d
}

func (d *natsd) run(t testing.TB) {
	o := d.options
	s, err := server.NewServer(&o)
	require.NoError(t, err)
	d.Server = s
	s.Start()
}

func (d *natsd) ready(t testing.TB) {
	require.True(t, d.ReadyForConnections(time.Minute))
	d.options.Port = d.Addr().(*net.TCPAddr).Port
}

func (d *natsd) stop() {
	d.Shutdown()
	d.WaitForShutdown()
}

func users(p server.Permissions) []*server.User {
	return []*server.User{{Username: "u", Password: "p", Permissions: &p}}
}

func denied(subject string) []*server.User {
	return users(server.Permissions{Publish: &server.SubjectPermission{Deny: []string{subject}}})
}

// allowed has what doc.go lists, and what expire needs.
var allowed = server.Permissions{
	Publish: &server.SubjectPermission{Allow: []string{
		"$JS.API.STREAM.INFO.KV_fencekit-locks", "$JS.API.STREAM.MSG.GET.KV_fencekit-locks", "$KV.fencekit-locks.>", "fencekit.fencekit-locks.>",
		"$JS.API.STREAM.CREATE.KV_fencekit-locks", "$JS.API.STREAM.PURGE.KV_fencekit-locks",
	}},
	Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", "fencekit.fencekit-locks.>"}},
}

func connect(t testing.TB, url string) jetstream.JetStream {
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	nc, err := nats.Connect(url, nats.UserInfo("u", "p"), quiet, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

func serviceOf(js jetstream.JetStream) *service { return newService(js, "fencekit-locks", 1) }

func locker(t testing.TB, js jetstream.JetStream, cfg *Config) *Locker {
	l, err := New(js, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(patient(t)) })
	return l
}

func expire(ctx context.Context, s *service, resource string) error {
	return (*s.opened.Load()).Purge(ctx, jetstream.WithPurgeSubject(s.keys+lockKey(resource)))
}

// listening waits for what others have told, which nothing promises otherwise.
type listening struct{ *service }

func (l listening) Contended(ctx context.Context, of []keylock.Request) ([]bool, error) {
	if _, err := l.service.Contended(ctx, of); err != nil {
		return nil, err
	}
	behind := keylock.Request{Resource: fmt.Sprint("behind all others ", time.Now())}
	l.tell("waits."+of[0].Process, "60000\n"+behind.Resource)
	for {
		are, err := l.service.Contended(ctx, append(of, behind))
		if err != nil || are[len(of)] || ctx.Err() != nil {
			return are[:len(of)], err
		}
	}
}

func TestService_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{JetStreamDomain: "hub", Users: users(allowed)}).ClientURL())
	inDomain, err := jetstream.NewWithDomain(js.Conn(), "hub")
	require.NoError(t, err)
	require.Equal(t, "$JS.hub.API.", serviceOf(inDomain).publish, "another domain may have the same bucket")
	for name, js := range map[string]jetstream.JetStream{"r": js, "r .>*=": inDomain} {
		a, b := listening{serviceOf(js)}, listening{serviceOf(js)}
		_, err := a.Contended(patient(t), []keylock.Request{{Process: "a"}})
		require.NoError(t, err)
		require.NoError(t, servicetest.Check(patient(t), servicetest.Harness{
			A: a, B: b, Resource: name,
			Expire: func(ctx context.Context, resource string) error { return expire(ctx, a.service, resource) },
		}))
	}
}

// A release wakes a call of another process, which would poll minutes later. It may only begin to listen now. Nothing
// listens for a closed Locker.
func TestWatch_HearsOfReleases(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{}).ClientURL())
	cfg := &Config{TTL: time.Hour, PollInterval: 6 * time.Minute}
	a, b := locker(t, js, cfg), locker(t, js, cfg)
	held, err := a.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	before := js.Conn().NumSubscriptions()
	held.AfterContended(func() {})
	until(t, func() bool { return js.Conn().NumSubscriptions() > before })
	acquired := make(chan error)
	go func() {
		_, err := b.Acquire(patient(t), "r")
		acquired <- err
	}()
	for {
		select {
		case err := <-acquired:
			require.NoError(t, err)
			require.NoError(t, a.Close(patient(t)))
			require.NoError(t, b.Close(patient(t)))
			require.Equal(t, before, js.Conn().NumSubscriptions())
			return
		case <-time.After(10 * time.Millisecond):
			if held != nil {
				require.NoError(t, held.Release(patient(t)))
			}
			held, _ = a.TryAcquire(patient(t), "r")
		}
	}
}

func TestContract(t *testing.T) { guardtest.TestLocker(t, harness(t, 10*time.Millisecond)) }

func BenchmarkLocker(b *testing.B) { guardtest.BenchmarkLocker(b, harness(b, 0)) }

func harness(t testing.TB, poll time.Duration) guardtest.LockerHarness {
	s := start(t, server.Options{})
	js := connect(t, s.ClientURL())
	return guardtest.LockerHarness{
		New: func(t testing.TB) guardtest.ClosableLocker {
			l, err := New(js, &Config{TTL: time.Minute, PollInterval: poll})
			require.NoError(t, err)
			return l
		},
		Lose: func(t testing.TB, l guardtest.ClosableLocker) {
			requests, renew := l.(*Locker).Owned()
			for i, r := range requests {
				require.NoError(t, expire(patient(t), l.(*Locker).service, r.Resource))
				require.ErrorIs(t, renew[i](), fence.ErrLeaseLost)
			}
		},
		MissDeadline: func(_ testing.TB, held fence.Lease) { keylock.MissDeadline(held) },
		Restart: func(t testing.TB) {
			s.stop()
			s.run(t)
			s.ready(t)
		},
	}
}

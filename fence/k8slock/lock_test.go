//go:build apiserver

package k8slock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
	"github.com/fencekit/fencekit/fence/internal/keylock/servicetest"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/test/sales"
	"github.com/fencekit/fencekit/internal/test/testenv/kubeserver"
)

const urlVariable, tokenVariable = "K8SLOCK_TEST_URL", "K8SLOCK_TEST_TOKEN"

func TestMain(m *testing.M) { sales.Main(m, ofWorker) }

func ofWorker(pool *pgxpool.Pool) (fence.Locker, error) {
	c, _ := connect(os.Getenv(urlVariable), os.Getenv(tokenVariable), nil)
	return New(c, &Config{Namespace: "default", Prefix: strings.ReplaceAll(pool.Config().ConnConfig.Database, "_", "-"), TTL: 2 * time.Second})
}

// Workers are paused and killed beyond their Leases. The lock alone loses sales.
func TestChaos_TheFenceHoldsWhereTheLockAloneBreaks(t *testing.T) {
	k := server(t)
	t.Setenv(urlVariable, k.URL())
	t.Setenv(tokenVariable, k.Token())
	sales.Test(t, ofWorker)
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func server(t testing.TB) *kubeserver.Server {
	k, err := kubeserver.Shared()
	require.NoError(t, err)
	return k
}

// hook sends a request, or doesn't.
type hook func(r *http.Request, send send) (*http.Response, error)

type send = func(*http.Request) (*http.Response, error)

type hooked struct {
	*http.Transport
	hook hook
}

func (h hooked) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.hook == nil {
		return h.Transport.RoundTrip(r)
	}
	return h.hook(r, h.Transport.RoundTrip)
}

func connect(url, token string, h hook) (c typed.CoordinationV1Interface, end func()) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	return typed.NewForConfigOrDie(&rest.Config{Host: url, BearerToken: token, QPS: -1, Transport: hooked{transport, h}}), transport.CloseIdleConnections
}

func client(t testing.TB, h hook) typed.CoordinationV1Interface {
	c, end := connect(server(t).URL(), server(t).Token(), h)
	t.Cleanup(end)
	return c
}

var namespaces atomic.Int64

func do(t testing.TB, method, path, contentType, body string) {
	t.Helper()
	code, text, err := server(t).Do(patient(t), method, path, contentType, []byte(body))
	require.NoError(t, err)
	require.Less(t, code, 300, text)
}

// namespace makes one.
func namespace(t testing.TB) string {
	name := fmt.Sprintf("test-%d", namespaces.Add(1))
	do(t, http.MethodPost, "/api/v1/namespaces", "application/json", `{"metadata": {"name": "`+name+`"}}`)
	return name
}

func serviceOf(c typed.CoordinationV1Interface, namespace string) *service {
	return &service{leases: typed.New(once{c.RESTClient()}).Leases(namespace), prefix: "fencekit"}
}

func locker(t testing.TB, c typed.CoordinationV1Interface, cfg *Config) *Locker {
	l, err := New(c, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(patient(t)) })
	return l
}

func request(holder string) keylock.Request {
	return keylock.Request{Resource: "r", Process: holder, Holder: holder, TTL: 1500 * time.Millisecond, Mark: time.Second}
}

func acquire(t testing.TB, s *service, r keylock.Request) fence.Token {
	t.Helper()
	token, err := s.Acquire(patient(t), r)
	require.NoError(t, err)
	return token
}

func locked(t testing.TB, s *service, r keylock.Request, holder string) {
	t.Helper()
	_, err := s.Acquire(patient(t), r)
	is := new(fence.LockedError)
	require.ErrorAs(t, err, &is)
	require.Equal(t, holder, is.Holder)
}

// later is as if s had seen the Lease of "r" that much earlier.
func later(s *service, d time.Duration) {
	at := s.sight("fencekit.r")
	at.first = at.first.Add(-d)
	s.seen.Store("fencekit.r", at)
}

func lose(t testing.TB, c typed.CoordinationV1Interface, namespace string, l *Locker) {
	requests, renew := l.Owned()
	for i, r := range requests {
		require.NoError(t, c.Leases(namespace).Delete(patient(t), serviceOf(c, namespace).name(r.Resource), metav1.DeleteOptions{}))
		require.ErrorIs(t, renew[i](), fence.ErrLeaseLost)
	}
}

func TestService_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	n := namespace(t)
	c := client(t, func(r *http.Request, send send) (*http.Response, error) {
		if r.Method == http.MethodGet && r.URL.Query().Has("resourceVersion") {
			return nil, errors.New("an answer that may be old")
		}
		return send(r)
	})
	a := serviceOf(c, n)
	require.NoError(t, servicetest.Check(patient(t), servicetest.Harness{
		A: a, B: serviceOf(c, n), Resource: "r",
		Expire: func(ctx context.Context, resource string) error {
			return c.Leases(n).Delete(ctx, a.name(resource), metav1.DeleteOptions{})
		},
	}))
	acquire(t, &service{leases: a.leases, prefix: "other"}, request("a"))
	owners, err := a.List(patient(t))
	require.NoError(t, err)
	require.Empty(t, owners)
}

func TestContract(t *testing.T) { guardtest.TestLocker(t, harness(t, 10*time.Millisecond)) }

func BenchmarkLocker(b *testing.B) { guardtest.BenchmarkLocker(b, harness(b, 0)) }

func harness(t testing.TB, poll time.Duration) guardtest.LockerHarness {
	k, err := kubeserver.Start(patient(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Stop(patient(t))) })
	c, end := connect(k.URL(), k.Token(), nil)
	t.Cleanup(end)
	return guardtest.LockerHarness{
		New: func(t testing.TB) guardtest.ClosableLocker {
			l, err := New(c, &Config{Namespace: "default", TTL: time.Minute, PollInterval: poll})
			require.NoError(t, err)
			return l
		},
		Lose:         func(t testing.TB, l guardtest.ClosableLocker) { lose(t, c, "default", l.(*Locker)) },
		MissDeadline: func(_ testing.TB, held fence.Lease) { keylock.MissDeadline(held) },
		Restart:      func(t testing.TB) { require.NoError(t, k.Restart(patient(t))) },
	}
}

//go:build apiserver

package k8slock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv/kubeserver"
	"github.com/fencekit/fencekit/storage/memory"
)

// lossy loses the answer to the next request of a method.
type lossy struct{ method atomic.Pointer[string] }

func (l *lossy) hook(r *http.Request, send send) (*http.Response, error) {
	response, err := send(r)
	if next := l.method.Load(); next != nil && *next == r.Method && l.method.CompareAndSwap(next, nil) {
		return nil, errors.Join(err, errors.New("connection reset"))
	}
	return response, err
}

// operator is another client of one Lease.
type operator struct {
	testing.TB
	leases typed.LeaseInterface
}

func operatorOf(t testing.TB, namespace string) operator {
	return operator{t, client(t, nil).Leases(namespace)}
}

func (o operator) get() *coordination.Lease {
	l, err := o.leases.Get(patient(o.TB), "fencekit.r", metav1.GetOptions{})
	require.NoError(o, err)
	return l
}

func (o operator) patch(text string) {
	_, err := o.leases.Patch(patient(o.TB), "fencekit.r", types.MergePatchType, []byte(text), metav1.PatchOptions{})
	require.NoError(o, err)
}

var notes atomic.Int64

func (o operator) annotate() {
	o.patch(fmt.Sprintf(`{"metadata": {"annotations": {"note": "%d"}}}`, notes.Add(1)))
}

func (o operator) delete() {
	require.NoError(o, o.leases.Delete(patient(o.TB), "fencekit.r", metav1.DeleteOptions{}))
}

// The answer to a Create or Update is lost. Whatever others write meanwhile, the next one has the version of that write,
// and others count the time to live from then on.
func TestAcquire_AsksAgainForALostAnswer(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		n, lossy := namespace(t), new(lossy)
		a, b, o := serviceOf(client(t, lossy.hook), n), serviceOf(client(t, nil), n), operatorOf(t, n)
		if method == http.MethodPut { // of a Lease whose holder is dead
			acquire(t, b, request("dead"))
			locked(t, a, request("a"), "dead")
			later(a, 3*time.Second)
		}
		lossy.method.Store(&method)
		_, err := a.Acquire(patient(t), request("a"))
		require.ErrorContains(t, err, "connection reset")
		want := fence.Token(number(o.get().ResourceVersion))
		locked(t, b, request("b"), "a") // and marks it
		later(b, 3*time.Second)
		require.NoError(t, b.Raise(patient(t), "r", want+1000))
		require.Equal(t, want, acquire(t, a, request("a")))
		locked(t, b, request("b"), "a")
		renewed, err := a.Renew(patient(t), request("a"), want)
		require.NoError(t, err)
		require.True(t, renewed)
		require.Equal(t, want, acquire(t, a, request("a")))
	}
}

func TestRenew_AnotherWriterIsNoLoss(t *testing.T) {
	t.Parallel()
	n := namespace(t)
	o := operatorOf(t, n)
	var before func() // a PUT arrives
	a := serviceOf(client(t, func(r *http.Request, send send) (*http.Response, error) {
		if r.Method == http.MethodPut {
			before()
		}
		return send(r)
	}), n)
	token := acquire(t, a, request("a"))
	once := false
	before = func() {
		if !once {
			once = true
			o.annotate()
		}
	}
	renewed, err := a.Renew(patient(t), request("a"), token)
	require.NoError(t, err)
	require.True(t, renewed)
	require.Equal(t, token, acquire(t, a, request("a")))
	before = o.annotate
	_, err = a.Renew(patient(t), request("a"), token)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	o.annotate()
	require.NoError(t, a.Release(patient(t), request("a")))
	_, err = o.leases.Get(patient(t), "fencekit.r", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	// A PUT makes a Lease that is gone, unless it has the UID.
	token = acquire(t, a, request("a"))
	before = func() {
		before = func() {}
		o.delete()
	}
	renewed, err = a.Renew(patient(t), request("a"), token)
	require.NoError(t, err)
	require.False(t, renewed)
	_, err = o.leases.Get(patient(t), "fencekit.r", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// The Lease of a dead holder is written between a look at it and the PUT: by one that leaves it free, and by one that takes
// it.
func TestAcquire_AnotherWriterIsNoFailure(t *testing.T) {
	t.Parallel()
	n := namespace(t)
	o, b := operatorOf(t, n), serviceOf(client(t, nil), n)
	var before func()
	a := serviceOf(client(t, func(r *http.Request, send send) (*http.Response, error) {
		if r.Method == http.MethodPut && before != nil {
			now := before
			before = nil
			now()
		}
		return send(r)
	}), n)
	acquire(t, b, request("dead"))
	for _, try := range []func(){
		func() { before = o.annotate; acquire(t, a, request("a")) },
		func() { before = func() { acquire(t, b, request("b")) }; locked(t, a, request("c"), "b") },
	} {
		for _, s := range []*service{a, b} {
			_, err := s.Acquire(patient(t), request("c"))
			require.ErrorIs(t, err, fence.ErrLocked)
			later(s, 3*time.Second)
		}
		try()
	}
}

// No clock counts but the time since this process has seen a renewal, and no writer but the holder.
func TestExpiry_IsWhatThisProcessHasSeen(t *testing.T) {
	t.Parallel()
	for _, clock := range []string{"1970-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z"} {
		n := namespace(t)
		c, o := client(t, nil), operatorOf(t, n)
		a, b := serviceOf(c, n), serviceOf(c, n)
		token := acquire(t, a, request("a"))
		o.patch(`{"spec": {"renewTime": "` + clock + `"}}`)
		locked(t, b, request("b"), "a")
		later(b, 1900*time.Millisecond) // 1.5 s are 2
		locked(t, b, request("b"), "a")
		seen := o.get().Spec.RenewTime
		renewed, err := a.Renew(patient(t), request("a"), token)
		require.NoError(t, err)
		require.True(t, renewed)
		require.True(t, o.get().Spec.RenewTime.After(seen.Time))
		later(b, 3*time.Second)
		locked(t, b, request("b"), "a") // since it was renewed
		later(b, 1900*time.Millisecond)
		o.annotate()
		locked(t, b, request("b"), "a")
		later(b, 150*time.Millisecond)
		o.annotate()
		locked(t, serviceOf(c, n), request("fresh"), "a")
		next := acquire(t, b, request("b"))
		require.Greater(t, next, token)
		renewed, err = a.Renew(patient(t), request("a"), token)
		require.NoError(t, err)
		require.False(t, renewed)
		require.NoError(t, a.Release(patient(t), request("a"))) // whose Lease is another's
		renewed, err = b.Renew(patient(t), request("b"), next)
		require.NoError(t, err)
		require.True(t, renewed)
	}
}

func TestSeen_IsForgotten(t *testing.T) {
	t.Parallel()
	s, l := new(service), new(coordination.Lease)
	l.Spec.HolderIdentity = new(string)
	*l.Spec.HolderIdentity = "a"
	for i := range 1000 {
		s.seen.Store(fmt.Sprint(i), sight{last: time.Now().Add(-time.Duration(i) * time.Minute)})
	}
	for range 1000 {
		require.NotZero(t, s.left(l))
	}
	left := 0
	s.seen.Range(func(any, any) bool { left++; return true })
	require.Equal(t, 61, left)
}

// Requests are what the API server counts.
func TestCosts_TwoRequestsALock(t *testing.T) {
	t.Parallel()
	n := namespace(t)
	asked := ""
	c := client(t, func(r *http.Request, send send) (*http.Response, error) {
		asked += r.Method + " "
		return send(r)
	})
	expect := func(want string) {
		t.Helper()
		require.Equal(t, want, asked)
		asked = ""
	}
	a, b := serviceOf(c, n), serviceOf(c, n)
	token := acquire(t, a, request("a"))
	expect("POST ")
	_, err := a.Renew(patient(t), request("a"), token)
	require.NoError(t, err)
	expect("PUT ")
	locked(t, b, request("b"), "a")
	expect("POST GET PUT ") // the mark
	locked(t, b, request("b"), "a")
	expect("GET ")
	require.NoError(t, a.Release(patient(t), request("a")))
	expect("DELETE GET DELETE ") // since it was marked
	acquire(t, b, request("b"))
	expect("GET POST ")
	require.NoError(t, b.Release(patient(t), request("b")))
	expect("DELETE ")
	late, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.granted(late, request("b"), new(coordination.Lease), nil)
	require.NoError(t, err)
	held := 0
	b.held.Range(func(any, any) bool { held++; return true })
	require.Zero(t, held)
}

// The cluster's etcd is restored, and issues versions again. What Raise adds goes with the Lease, and comes back.
func TestRaise_TokensGoOnAboveTheFence(t *testing.T) {
	t.Parallel()
	k, err := kubeserver.Start(patient(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Stop(patient(t))) })
	c, end := connect(k.URL(), k.Token(), nil)
	t.Cleanup(end)
	data, backup, store := k.Etcd().Dir().Path("etcd"), t.TempDir(), memory.NewStore()
	g, err := guard.New(locker(t, c, &Config{Namespace: "default"}), store, &guard.Config{KeepFor: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(patient(t))) })
	do := func(rejected int) {
		t.Helper()
		require.NoError(t, guard.Do(patient(t), g, "r", func(context.Context, *memory.Tx) error { return nil }, guard.Retryable()))
		rejections, err := store.Rejections(patient(t), "r", 10)
		require.NoError(t, err)
		require.Len(t, rejections, rejected)
	}
	stopped := func(f func() error) {
		require.NoError(t, k.Kill())
		require.NoError(t, k.WhileStopped(patient(t), func() error { return k.Etcd().WhileStopped(patient(t), f) }))
	}
	stopped(func() error { return os.CopyFS(backup, os.DirFS(data)) })
	for range 100 {
		do(0)
	}
	stopped(func() error { return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup))) })
	do(1)
	do(1)
	require.NoError(t, c.Leases("default").Delete(patient(t), "fencekit.r", metav1.DeleteOptions{}))
	do(2)
}

// A Lease of a leader election is never written, and one that such an election takes is its.
func TestForeign_LeasesAreLeftAsTheyAre(t *testing.T) {
	t.Parallel()
	n := namespace(t)
	c, o := client(t, nil), operatorOf(t, n)
	a, l := serviceOf(c, n), locker(t, c, &Config{Namespace: n})
	election := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: n, Name: "fencekit.r"}, Client: c, LockConfig: resourcelock.ResourceLockConfig{Identity: "leader"}}
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "leader", LeaseDurationSeconds: 1, AcquireTime: metav1.Now(), RenewTime: metav1.Now()}
	require.NoError(t, election.Create(patient(t), record))
	version := o.get().ResourceVersion
	for range 2 {
		_, err := l.TryAcquire(patient(t), "r")
		foreign := new(ForeignLeaseError)
		require.ErrorAs(t, err, &foreign)
		require.Equal(t, ForeignLeaseError{n, "fencekit.r", foreign.Resource}, *foreign)
		requireUnavailable(t, err, "")
		require.ErrorContains(t, err, "Config.Prefix")
		require.False(t, guard.SafeToRetry(err))
		require.ErrorAs(t, l.Raise(patient(t), fence.Grant{Resource: "r", Epoch: 1, Token: 1e6, Holder: "h"}), &foreign)
		require.NoError(t, a.Release(patient(t), request("leader")))
		require.Equal(t, version, o.get().ResourceVersion)
		o.patch(`{"metadata": {"annotations": {"fencekit/resource": "other"}}}`)
		version = o.get().ResourceVersion
	}
	o.delete()

	token := acquire(t, a, request("a"))
	_, _, err := election.Get(patient(t))
	require.NoError(t, err)
	require.NoError(t, election.Update(patient(t), record))
	renewed, err := a.Renew(patient(t), request("a"), token)
	require.NoError(t, err)
	require.False(t, renewed)
	locked(t, a, request("a"), "leader")
	o.patch(`{"spec": {"leaseDurationSeconds": null}}`)
	later(a, 1100*time.Millisecond)
	locked(t, a, request("a"), "leader")
	o.patch(`{"spec": {"leaseDurationSeconds": 1}}`)
	acquire(t, a, request("a"))
}

// The next poll is minutes away.
func TestWatch_TellsAWaiter(t *testing.T) {
	t.Parallel()
	n := namespace(t)
	c := client(t, nil)
	held, err := locker(t, c, &Config{Namespace: n}).TryAcquire(patient(t), "r")
	require.NoError(t, err)
	watching := client(t, func(r *http.Request, send send) (*http.Response, error) {
		if r.URL.Query().Has("watch") {
			require.NoError(t, held.Release(patient(t))) // after the waiter's look
		}
		return send(r)
	})
	_, err = locker(t, watching, &Config{Namespace: n, TTL: time.Hour, PollInterval: 6 * time.Minute}).Acquire(patient(t), "r")
	require.NoError(t, err)
}

// The server ends watches now and then, and may take none. Polls make up for that.
func TestWatch_BeginsAnew(t *testing.T) {
	t.Parallel()
	n := namespace(t)
	held, err := locker(t, client(t, nil), &Config{Namespace: n}).TryAcquire(patient(t), "r")
	require.NoError(t, err)
	watches := 0
	c := client(t, func(r *http.Request, send send) (*http.Response, error) {
		if r.URL.Query().Has("watch") {
			q := r.URL.Query()
			switch watches++; watches {
			case 1:
				return nil, errors.New("no watch")
			case 2:
				q.Set("timeoutSeconds", "1")
			case 3:
				require.NoError(t, held.Release(patient(t)))
			}
			r = r.Clone(r.Context())
			r.URL.RawQuery = q.Encode()
		}
		return send(r)
	})
	_, err = locker(t, c, &Config{Namespace: n, PollInterval: 10 * time.Millisecond}).Acquire(patient(t), "r")
	require.NoError(t, err)
}

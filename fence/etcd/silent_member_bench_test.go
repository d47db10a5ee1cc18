package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// BenchmarkSilentMember has three lockers with default Configs pass five locks
// around, each held until another locker waits, while one follower of three is silent for
// 45 s: stopped, or cut off from the clients. It reports how many leases were lost,
// how many calls of Acquire failed, and how long the longest other took, at all and of
// those that began 20 s or more after the silence. Run it with -benchtime 1x.
func BenchmarkSilentMember(b *testing.B) {
	for _, fault := range []string{"stopped", "cut"} {
		for name, config := range map[string]func(...string) clientv3.Config{
			"ClientConfig": ClientConfig,
			"plain": func(endpoints ...string) clientv3.Config {
				return clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()}
			},
		} {
			b.Run(fmt.Sprintf("%s/%s", fault, name), func(b *testing.B) {
				for range b.N {
					measureSilence(b, fault, config)
				}
			})
		}
	}
}

func measureSilence(b *testing.B, fault string, config func(...string) clientv3.Config) {
	c := startCluster(b)
	follower := anotherThan(c, leaderAfter(b, c, nil))
	link, err := netfault.New(strings.TrimPrefix(follower.Endpoint(), "http://"))
	require.NoError(b, err)
	defer link.Close()
	endpoints := []string{"http://" + link.Addr()}
	for _, m := range c.Members() {
		if m != follower {
			endpoints = append(endpoints, m.Endpoint())
		}
	}
	t := &turnTimes{waiting: map[waiter]time.Time{}}
	ctx, cancel := context.WithCancel(b.Context())
	for range 3 {
		client, err := clientv3.New(config(endpoints...))
		require.NoError(b, err)
		defer client.Close()
		l, err := NewLocker(client, nil)
		require.NoError(b, err)
		defer l.Close(context.Background())
		for i := range 5 {
			t.running.Go(func() { t.take(ctx, l, fmt.Sprint("r", i)) })
		}
	}
	time.Sleep(10 * time.Second)
	t.begin()
	makeSilent(b, fault, follower, link)
	time.Sleep(45 * time.Second)
	t.report(b)
	cancel()
	t.running.Wait()
}

func makeSilent(b *testing.B, fault string, m *etcdserver.Member, link *netfault.Link) {
	if fault == "stopped" {
		require.NoError(b, m.Pause())
		b.Cleanup(func() { _ = m.Resume() })
		return
	}
	for _, d := range []netfault.Direction{netfault.ToServer, netfault.ToClient} {
		b.Cleanup(link.Cut(d))
	}
}

type waiter struct {
	locker   *Locker
	resource string
}

// turnTimes collects the results of the calls that acquire.
type turnTimes struct {
	running sync.WaitGroup

	mu            sync.Mutex
	since         time.Time // when the member fell silent
	taken         int
	failed, lost  int
	longest, late time.Duration
	waiting       map[waiter]time.Time // since when
}

func (t *turnTimes) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Now()
}

// take acquires and holds until another waits, again and again.
func (t *turnTimes) take(ctx context.Context, l *Locker, resource string) {
	for ctx.Err() == nil {
		t.mu.Lock()
		t.waiting[waiter{l, resource}] = time.Now()
		t.mu.Unlock()
		le, err := l.Acquire(ctx, resource)
		t.add(ctx, waiter{l, resource}, err)
		if err != nil {
			continue
		}
		contended := make(chan struct{})
		le.AfterContended(func() { close(contended) })
		select {
		case <-contended:
		case <-le.Done():
			t.mu.Lock()
			t.lost++
			t.mu.Unlock()
		case <-ctx.Done():
		}
		_ = le.Release(context.WithoutCancel(ctx)) // goes on in the background
	}
}

func (t *turnTimes) add(ctx context.Context, w waiter, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	began := t.waiting[w]
	delete(t.waiting, w)
	switch {
	case t.since.IsZero() || ctx.Err() != nil:
	case err != nil:
		t.failed++
	default:
		t.taken++
		t.waited(began)
	}
}

// waited records the time since a wait began. Callers hold mu.
func (t *turnTimes) waited(began time.Time) {
	t.longest = max(t.longest, time.Since(began))
	if began.Sub(t.since) >= 20*time.Second {
		t.late = max(t.late, time.Since(began))
	}
}

func (t *turnTimes) report(b *testing.B) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, began := range t.waiting {
		t.waited(began)
	}
	b.ReportMetric(float64(t.lost), "lost")
	b.ReportMetric(float64(t.failed), "failed")
	b.ReportMetric(float64(t.taken), "acquired")
	b.ReportMetric(t.longest.Seconds(), "longest-s")
	b.ReportMetric(t.late.Seconds(), "longest-after-20s-s")
	b.ReportMetric(0, "ns/op")
}

package natslock

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

// cluster starts three servers, by name.
func cluster(t testing.TB) (servers map[string]*natsd, urls string) {
	servers = map[string]*natsd{}
	var routes []*url.URL
	var free []net.Listener
	for range 3 { // each has to know the ports of all before it starts
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		routes, free = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()}), append(free, l)
	}
	for n, l := range free {
		require.NoError(t, l.Close())
		d := prepare(t, server.Options{
			ServerName: fmt.Sprint("n", n), Routes: routes,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port},
		})
		d.run(t)
		servers[d.options.ServerName] = d
	}
	for _, d := range servers {
		d.ready(t)
		urls += "," + d.ClientURL()
	}
	until(t, func() bool {
		for _, d := range servers {
			if d.JetStreamIsLeader() && len(d.JetStreamClusterPeers()) == 3 {
				return true
			}
		}
		return false
	})
	return servers, urls[1:]
}

// seen is what a resource's grants were.
type seen struct {
	mu     sync.Mutex
	lease  fence.Lease
	token  fence.Token
	grants atomic.Int64
}

func (s *seen) granted(t testing.TB, lease fence.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil && s.lease.Remaining() > 0 && lease.Remaining() > 0 {
		t.Errorf("%v was granted beside %v", lease.Grant(), s.lease.Grant())
	}
	if lease.Grant().Token <= s.token {
		t.Errorf("%v was granted after token %d", lease.Grant(), s.token)
	}
	s.lease, s.token = lease, lease.Grant().Token
	s.grants.Add(1)
}

// Under load the bucket's leader is stopped, twice.
func TestCluster_ItsLeaderIsStopped(t *testing.T) {
	t.Parallel()
	servers, urls := cluster(t)
	resources := map[string]*seen{"r/0": {}, "r/1": {}, "r/2": {}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var js jetstream.JetStream
	for range 4 {
		js = connect(t, urls)
		l := locker(t, js, &Config{Replicas: 3, TTL: 3 * time.Second, PollInterval: 10 * time.Millisecond})
		for name, resource := range resources {
			running.Go(func() {
				for ctx.Err() == nil {
					lease, err := l.Acquire(ctx, name)
					if err != nil {
						continue
					}
					resource.granted(t, lease)
					_ = lease.Release(context.WithoutCancel(ctx))
				}
			})
		}
	}
	progress := func() {
		for _, resource := range resources {
			n := resource.grants.Load() + 20
			until(t, func() bool { return resource.grants.Load() > n })
		}
	}
	progress()
	for range 2 {
		bucket, err := js.Stream(patient(t), "KV_fencekit-locks")
		require.NoError(t, err)
		leader := servers[bucket.CachedInfo().Cluster.Leader]
		leader.stop()
		progress()
		leader.run(t)
		leader.ready(t)
		progress()
	}
}

func until(t testing.TB, what func() bool) {
	t.Helper()
	require.Eventually(t, what, time.Minute, 5*time.Millisecond)
}

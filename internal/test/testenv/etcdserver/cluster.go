package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// Cluster is an etcd of several members, always one of our own. Its methods may be called concurrently.
type Cluster struct {
	members  []*Member
	network  *http.Server
	stopping sync.Once
	stopped  error
}

// Member is one member of a cluster. While too few others can be reached,
// Restart doesn't return before its context ends.
//
// Members know each other by names that lead nowhere, and send through an HTTP proxy, each over a link of its own: the
// far end of a connection could not tell who sends.
type Member struct {
	*Server
	sends, gets *netfault.Link

	mu   sync.Mutex
	mend func() // nil unless it is isolated
}

// StartCluster starts a cluster and returns once every member answers; it must be stopped by Stop. ctx bounds
// the start alone.
func StartCluster(ctx context.Context, size int, cfg *Config) (*Cluster, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	silent := log.New(io.Discard, "", 0)
	c.network = &http.Server{ErrorLog: silent, Handler: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Host = c.named(r.In.URL.Hostname()).gets.Addr() },
		FlushInterval: -1, // streams have to flow
		Transport:     &http.Transport{DisableKeepAlives: true},
		ErrorLog:      silent,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}}
	if err := c.start(ctx, size, cfg, listener); err != nil {
		return nil, errors.Join(err, c.Stop(context.Background()))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, size int, cfg *Config, listener net.Listener) error {
	var all []string
	for i := range size {
		m, err := newMember(fmt.Sprintf("member%d", i), cfg, listener.Addr().String())
		if m != nil {
			c.members = append(c.members, m)
		}
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		all = append(all, m.name+"="+m.peerURL)
	}
	go func() { _ = c.network.Serve(listener) }() // until Stop
	// None is ready without the others.
	errs := make([]error, size)
	var starting sync.WaitGroup
	for i, m := range c.members {
		m.cluster = strings.Join(all, ",")
		starting.Go(func() { errs[i] = m.Server.start(ctx) })
	}
	starting.Wait()
	return errors.Join(errs...)
}

func newMember(name string, cfg *Config, network string) (*Member, error) {
	e, err := newServer(name, cfg)
	if err != nil {
		return nil, err
	}
	m := &Member{Server: e}
	if m.sends, err = netfault.New(network); err != nil {
		return m, err
	}
	if m.gets, err = netfault.New(e.Address(1)); err != nil {
		return m, err
	}
	e.peerURL, e.proxy = fmt.Sprintf("http://%s.invalid:%d", name, e.Port(1)), "http://"+m.sends.Addr()
	return m, nil
}

// named is the member that the others, and no client, find at a host.
func (c *Cluster) named(host string) *Member {
	for _, m := range c.members {
		if host == m.name+".invalid" {
			return m
		}
	}
	return nil
}

// Members are the members, always in the same order.
func (c *Cluster) Members() []*Member { return c.members }

// Endpoints are where clients connect, in the order of Members.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.Endpoint())
	}
	return all
}

// Client returns a new client of all members; see Server.Client.
func (c *Cluster) Client(ctx context.Context) (*clientv3.Client, error) {
	return newClient(ctx, c.members[0].cfg.Certificates, c.Endpoints())
}

// Stop ends all members and removes their directories. Further calls return what the first one did.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stopping.Do(func() {
		var errs []error
		for _, m := range c.members {
			// Orderly, a member would wait for the others to take over.
			errs = append(errs, m.Kill(), m.Server.Stop(ctx))
		}
		errs = append(errs, c.network.Close())
		for _, m := range c.members {
			errs = append(errs, m.sends.Close(), m.gets.Close())
		}
		c.stopped = errors.Join(errs...)
	})
	return c.stopped
}

// Isolate cuts the member off from all others, in both directions and silently. Its
// clients still reach it. A second call does nothing.
func (m *Member) Isolate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mend == nil {
		both := []netfault.Direction{netfault.ToServer, netfault.ToClient}
		sends, gets := m.sends.Cut(both...), m.gets.Cut(both...)
		m.mend = func() { sends(); gets() }
	}
}

// Rejoin ends an isolation, and loses what was held back; without one it does nothing.
func (m *Member) Rejoin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mend != nil {
		m.sends.Reset()
		m.gets.Reset()
		m.mend()
		m.mend = nil
	}
}

// Leader returns the member that says that it leads, and more than half of all agree. It asks until that is
// so, or ctx ends.
func (c *Cluster) Leader(ctx context.Context) (*Member, error) {
	return c.LeaderAfter(ctx, nil)
}

// LeaderAfter is Leader, but waits for another one than old: after old was taken away, the
// others take it for their leader for a while.
func (c *Cluster) LeaderAfter(ctx context.Context, old *Member) (leader *Member, err error) {
	err = process.Poll(ctx, func(ctx context.Context) error {
		leader = c.askForLeader(ctx)
		if leader == nil || leader == old {
			return errors.New("testenv: etcd: no leader")
		}
		return nil
	})
	return leader, err
}

func (c *Cluster) askForLeader(ctx context.Context) *Member {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // members may be silent
	defer cancel()
	answers := make([]*clientv3.StatusResponse, len(c.members))
	var asking sync.WaitGroup
	for i, m := range c.members {
		asking.Go(func() {
			client, err := m.Client(ctx)
			if err != nil {
				return
			}
			defer client.Close()
			answers[i], _ = client.Status(ctx, m.Endpoint())
		})
	}
	asking.Wait()
	votes := map[uint64]int{}
	for _, a := range answers {
		if a != nil {
			votes[a.Leader]++
		}
	}
	for i, a := range answers {
		if a != nil && a.Leader == a.Header.MemberId && votes[a.Leader] > len(c.members)/2 {
			return c.members[i]
		}
	}
	return nil
}

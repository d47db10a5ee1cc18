package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Cluster is an etcd of several members, always one of our own. Its methods may be called concurrently.
type Cluster struct {
	members      []*Member
	network      *peerNetwork
	certificates *Certificates
	stopping     sync.Once
	stopped      error
}

// Member is one member of a cluster. While too few others can be reached,
// Restart doesn't return before its context ends.
type Member struct {
	*Server
	network *peerNetwork
	start   func(ctx context.Context) error
}

// hostOf is where the other members, and no client, find a member.
func hostOf(member string) string { return member + ".invalid" }

// StartCluster starts a cluster and returns once every member answers; it must be stopped by Stop. ctx bounds
// the start alone.
func StartCluster(ctx context.Context, size int, cfg *Config) (*Cluster, error) {
	conf, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if size < 1 || conf.Dir != "" {
		return nil, fmt.Errorf("testenv: etcd: a cluster has at least one member (not %d), and data directories of its own", size)
	}
	network, err := newPeerNetwork()
	if err != nil {
		return nil, err
	}
	c := &Cluster{network: network, certificates: conf.Certificates}
	if err := c.start(ctx, size, conf); err != nil {
		return nil, errors.Join(err, c.Stop(context.Background()))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, size int, cfg Config) error {
	var all []string
	for i := range size {
		m, err := c.network.add(fmt.Sprintf("member%d", i), cfg)
		if err != nil {
			return err
		}
		c.members = append(c.members, m)
		all = append(all, m.seat.name+"="+m.seat.peerURL)
	}
	// None is ready without the others.
	errs := make([]error, size)
	var starting sync.WaitGroup
	for i, m := range c.members {
		m.seat.cluster = strings.Join(all, ",")
		starting.Go(func() { errs[i] = m.start(ctx) })
	}
	starting.Wait()
	return errors.Join(errs...)
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
	return newClient(ctx, c.certificates, c.Endpoints())
}

// Stop ends all members and removes their directories. Further calls return what the first one did.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stopping.Do(func() {
		var errs []error
		for _, m := range c.members {
			// Orderly, a member would wait for the others to take over.
			errs = append(errs, m.Kill(), m.Stop(ctx))
		}
		c.stopped = errors.Join(append(errs, c.network.close())...)
	})
	return c.stopped
}

// Isolate cuts the member off from all others, in both directions and silently. Its
// clients still reach it. A second call does nothing.
func (m *Member) Isolate() { m.network.isolate(hostOf(m.seat.name)) }

// Rejoin ends an isolation; without one it does nothing.
func (m *Member) Rejoin() { m.network.rejoin(hostOf(m.seat.name)) }

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

// StartLearner starts a member that e, which is alone, has as a learner: it takes no requests but
// for its status and serializable reads. It must be stopped by Stop.
func StartLearner(ctx context.Context, e *Server) (*Server, error) {
	client, err := e.Client(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	s, err := process.NewServer("etcd-learner", nil, 2)
	if err != nil {
		return nil, err
	}
	peer := "http://" + s.Address(1)
	if _, err := client.MemberAddAsLearner(ctx, []string{peer}); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	cfg, err := (&Config{ExtraFlags: []string{"--initial-cluster-state=existing"}}).withDefaults()
	if err != nil {
		return nil, err
	}
	l, program := newServer(s, cfg, seat{name: "learner", peerURL: peer, cluster: e.seat.cluster + ",learner=" + peer})
	program.Ready = func(ctx context.Context) error {
		return process.Poll(ctx, func(ctx context.Context) error {
			status, err := client.Status(ctx, l.Endpoint())
			if err == nil && !status.IsLearner {
				err = errors.New("testenv: etcd: the member is no learner")
			}
			return err
		})
	}
	if err := s.Start(ctx, program); err != nil {
		return nil, err
	}
	return l, nil
}

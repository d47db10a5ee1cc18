package testenv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// EtcdCluster is an etcd of several members, each a child process. It is always
// one of our own, whatever FENCEKIT_ETCD_ENDPOINTS says. Its methods may be
// called concurrently.
type EtcdCluster struct {
	members      []*EtcdMember
	network      *peerNetwork
	certificates *Certificates
	stopping     sync.Once
	stopped      error
}

// EtcdMember is one member of a cluster. While too few others can be reached,
// Restart doesn't return before its context ends.
type EtcdMember struct {
	*Etcd
	network *peerNetwork
}

// StartEtcdCluster starts a cluster and returns once every member answers; it
// must be stopped by Stop. EtcdConfig.Dir has to be empty. ctx bounds the start
// alone.
func StartEtcdCluster(ctx context.Context, size int, cfg *EtcdConfig) (*EtcdCluster, error) {
	conf, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if size < 1 || conf.Dir != "" {
		return nil, fmt.Errorf("testenv: etcd: a cluster has at least one member (not %d), and data directories of its own", size)
	}
	c := &EtcdCluster{network: newPeerNetwork(), certificates: conf.Certificates}
	servers, seats, err := c.seats(size, conf)
	if err != nil {
		return nil, errors.Join(err, c.discard(servers))
	}
	for i, s := range servers {
		c.members = append(c.members, &EtcdMember{Etcd: newEtcd(s, conf, seats[i]), network: c.network})
	}
	// None is ready without the others.
	errs := make([]error, size)
	var starting sync.WaitGroup
	for i, s := range servers {
		starting.Go(func() { errs[i] = s.start(ctx) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, c.Stop(context.Background()))
	}
	return c, nil
}

// seats makes the servers and says what each member is known by.
func (c *EtcdCluster) seats(size int, cfg EtcdConfig) (servers []*server, seats []seat, err error) {
	var all []string
	for i := range size {
		s, err := newServer(fmt.Sprintf("etcd%d", i), cfg.Log, 2)
		if err != nil {
			return servers, nil, err
		}
		servers = append(servers, s)
		at := seat{name: fmt.Sprintf("member%d", i)}
		host := at.name + ".invalid"
		at.peerURL = fmt.Sprintf("http://%s:%d", host, s.ports[1].number)
		if at.proxy, err = c.network.add(host, s.ports[1].address()); err != nil {
			return servers, nil, err
		}
		seats, all = append(seats, at), append(all, at.name+"="+at.peerURL)
	}
	for i := range seats {
		seats[i].cluster = strings.Join(all, ",")
	}
	return servers, seats, nil
}

// discard gives back what was made for members that never started.
func (c *EtcdCluster) discard(servers []*server) error {
	errs := []error{c.network.close()}
	for _, s := range servers {
		errs = append(errs, s.discard())
	}
	return errors.Join(errs...)
}

// Members are the members, always in the same order.
func (c *EtcdCluster) Members() []*EtcdMember { return c.members }

// Endpoints are where clients connect, in the order of Members.
func (c *EtcdCluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.Endpoint())
	}
	return all
}

// Client returns a new client of all members; see Etcd.Client, which makes one of
// a single member.
func (c *EtcdCluster) Client(ctx context.Context) (*clientv3.Client, error) {
	return newEtcdClient(ctx, c.certificates, c.Endpoints())
}

// Stop ends all members and removes their directories. Further calls return what
// the first one did.
func (c *EtcdCluster) Stop(ctx context.Context) error {
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

// Isolate cuts the member off from all others, in both directions and silently.
// Its clients still reach it. A second call does nothing.
func (m *EtcdMember) Isolate() error { return m.network.isolate(m.host()) }

// Rejoin ends an isolation; without one it does nothing.
func (m *EtcdMember) Rejoin() error { return m.network.rejoin(m.host()) }

func (m *EtcdMember) host() string { return m.seat.name + ".invalid" }

// Leader returns the member that leads: it answers that it does, and more than
// half of all agree. It asks until that is so, or ctx ends.
func (c *EtcdCluster) Leader(ctx context.Context) (*EtcdMember, error) {
	return c.LeaderAfter(ctx, nil)
}

// LeaderAfter is Leader for those who took the old leader away: for a while the
// others still believe in it.
func (c *EtcdCluster) LeaderAfter(ctx context.Context, old *EtcdMember) (leader *EtcdMember, err error) {
	err = poll(ctx, func(ctx context.Context) error {
		leader = c.askForLeader(ctx)
		if leader == nil || leader == old {
			return errors.New("testenv: etcd: no leader")
		}
		return nil
	})
	return leader, err
}

// askForLeader asks every member once.
func (c *EtcdCluster) askForLeader(ctx context.Context) *EtcdMember {
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

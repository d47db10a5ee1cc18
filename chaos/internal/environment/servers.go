package environment

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/redisserver"
)

// Servers are the servers that successive runs share. Each is started when a run first
// needs it. After Close the next run starts new ones.
type Servers struct {
	postgres *pgserver.Server
	etcd     map[int]*etcdserver.Cluster // by number of members
}

// NewServers returns Servers, none of which has started.
func NewServers() *Servers { return &Servers{etcd: map[int]*etcdserver.Cluster{}} }

func (l *Servers) startPostgres(ctx context.Context) (_ *pgserver.Server, err error) {
	if l.postgres == nil {
		l.postgres, err = pgserver.Start(ctx, nil)
	}
	return l.postgres, err
}

func (l *Servers) startEtcd(ctx context.Context, members int) (_ *etcdserver.Cluster, err error) {
	if l.etcd[members] == nil {
		c, err := etcdserver.StartCluster(ctx, members, nil)
		if err != nil {
			return nil, err
		}
		l.etcd[members] = c
	}
	return l.etcd[members], nil
}

// Close stops all servers.
func (l *Servers) Close(ctx context.Context) error {
	var errs []error
	if l.postgres != nil {
		errs = append(errs, l.postgres.Stop(ctx))
	}
	for _, c := range l.etcd {
		errs = append(errs, c.Stop(ctx))
	}
	*l = *NewServers()
	return errors.Join(errs...)
}

// cluster is a etcdserver.Cluster as faults see it.
type cluster struct{ *etcdserver.Cluster }

func (c cluster) Members() (members []fault.Member) {
	for _, m := range c.Cluster.Members() {
		members = append(members, m)
	}
	return members
}

func (c cluster) Leader(ctx context.Context) (fault.Member, error) { return c.Cluster.Leader(ctx) }

// redises are the Redis servers of one run of a control. Runs don't share them: faults
// make them lose their data.
type redises struct {
	servers []*redisserver.Server
}

func startRedises(ctx context.Context, needs []control.Need) (r *redises, err error) {
	r = &redises{}
	for _, need := range needs {
		switch need {
		case control.Redis:
			err = r.start(ctx, 1)
		case control.RedisReplica:
			if err = r.start(ctx, 1); err == nil {
				var replica *redisserver.Server
				if replica, err = redisserver.StartReplica(ctx, r.servers[0]); err == nil {
					r.servers = append(r.servers, replica)
				}
			}
		case control.Redlock:
			err = r.start(ctx, 5)
		case control.Etcd:
		default:
			err = fmt.Errorf("chaos: a control needs %q, and there is no such server", need)
		}
		if err != nil {
			return nil, errors.Join(err, r.close(context.WithoutCancel(ctx)))
		}
	}
	return r, nil
}

func (r *redises) start(ctx context.Context, number int) error {
	for range number {
		s, err := redisserver.Start(ctx, nil)
		if err != nil {
			return err
		}
		r.servers = append(r.servers, s)
	}
	return nil
}

func (r *redises) addresses() (all []string) {
	for _, s := range r.servers {
		all = append(all, s.Addr())
	}
	return all
}

func (r *redises) close(ctx context.Context) error {
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(errs...)
}

// PostgresSource says where the Postgres comes from; empty before it has started.
func (l *Servers) PostgresSource() string {
	if l.postgres == nil {
		return ""
	}
	return l.postgres.Source()
}

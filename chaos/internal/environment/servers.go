package environment

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/internal/testenv"
)

// Servers are the servers of runs that follow one another. What a run needs is started
// when the first one needs it. After Close the next run starts others.
type Servers struct {
	postgres *testenv.Postgres
	etcd     map[int]*testenv.EtcdCluster // by number of members
}

// NewServers returns Servers, none of which has started.
func NewServers() *Servers { return &Servers{etcd: map[int]*testenv.EtcdCluster{}} }

func (l *Servers) startPostgres(ctx context.Context) (_ *testenv.Postgres, err error) {
	if l.postgres == nil {
		l.postgres, err = testenv.StartPostgres(ctx, nil)
	}
	return l.postgres, err
}

func (l *Servers) startEtcd(ctx context.Context, members int) (_ *testenv.EtcdCluster, err error) {
	if l.etcd[members] == nil {
		c, err := testenv.StartEtcdCluster(ctx, members, nil)
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

// cluster is a testenv.EtcdCluster as faults see it.
type cluster struct{ *testenv.EtcdCluster }

func (c cluster) Members() (members []fault.Member) {
	for _, m := range c.EtcdCluster.Members() {
		members = append(members, m)
	}
	return members
}

func (c cluster) Leader(ctx context.Context) (fault.Member, error) { return c.EtcdCluster.Leader(ctx) }

// redises are the Redis servers that a control needs, of its own: they lose their
// data.
type redises struct {
	servers []*testenv.Redis
}

func startRedises(ctx context.Context, needs []control.Need) (r *redises, err error) {
	r = &redises{}
	for _, need := range needs {
		switch need {
		case control.Redis:
			err = r.start(ctx, 1)
		case control.RedisReplica:
			if err = r.start(ctx, 1); err == nil {
				var replica *testenv.Redis
				if replica, err = testenv.StartReplica(ctx, r.servers[0]); err == nil {
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
		s, err := testenv.StartRedis(ctx, nil)
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

// PostgresSource says where the Postgres is from; empty before it has started.
func (l *Servers) PostgresSource() string {
	if l.postgres == nil {
		return ""
	}
	return l.postgres.Source()
}

package environment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/patroni"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	servers "github.com/fencekit/fencekit/internal/testenv/process"
	"github.com/fencekit/fencekit/storage/postgres"
)

// SetUp makes everything but the worker processes. TearDown undoes it, also after a
// failure.
func (s *Environment) SetUp(ctx context.Context, servers *Servers) (err error) {
	name := fmt.Sprintf("%016x", rand.Uint64())
	s.prefix = "chaos/" + name
	if s.etcd, err = servers.startEtcd(ctx, s.cfg.Members); err != nil {
		return err
	}
	if s.client, err = s.etcd.Client(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.onTearDown(func(context.Context) error { return s.client.Close() })
	if s.cfg.Patroni {
		err = s.startPatroni(ctx)
	} else {
		err = s.createDatabase(ctx, servers, "chaos_"+name)
	}
	if err != nil {
		return err
	}
	if s.pool, err = pgxpool.New(context.WithoutCancel(ctx), s.dsn); err != nil {
		return err
	}
	s.onTearDown(s.closePool)
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if err := s.OnData(ctx, "Prepare", s.cfg.Workload.Prepare); err != nil {
		return fmt.Errorf("%w: Prepare of %q: %w", workload.ErrWorkload, s.cfg.Workload.Name(), err)
	}
	return nil
}

// createDatabase makes the run's database on the Postgres that runs share.
func (s *Environment) createDatabase(ctx context.Context, servers *Servers, name string) (err error) {
	if s.postgres, err = servers.startPostgres(ctx); err != nil {
		return err
	}
	if s.dsn, err = s.postgres.CreateDatabase(ctx, name); err != nil {
		return err
	}
	s.onTearDown(func(ctx context.Context) error { return s.postgres.DropDatabase(ctx, name) })
	return nil
}

// prepare makes what the group needs.
func (s *Environment) prepare(ctx context.Context) error {
	if s.cfg.Group == result.Fenced {
		_, err := postgres.Migrate(ctx, s.pool, "")
		return err
	}
	c, err := control.ByName(s.cfg.Group)
	if err != nil {
		return err
	}
	if c.Serve != nil {
		if s.service, err = c.Serve(ctx); err != nil {
			return err
		}
		s.onTearDown(s.service.Stop)
	}
	if c.Prepare == nil {
		return nil
	}
	return c.Prepare(ctx, s.pool)
}

// TearDown undoes SetUp.
func (s *Environment) TearDown(ctx context.Context) error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i](ctx))
	}
	return errors.Join(errs...)
}

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

// PostgresSource says where the Postgres comes from; empty before it has started.
func (l *Servers) PostgresSource() string {
	if l.postgres == nil {
		return ""
	}
	return l.postgres.Source()
}

// startPatroni starts three Postgres servers under Patroni in synchronous mode, which are the
// run's alone. Patroni has an etcd of its own: faults of the lock service are not its faults.
func (s *Environment) startPatroni(ctx context.Context) error {
	members, err := etcdserver.StartCluster(ctx, 1, nil)
	if err != nil {
		return err
	}
	s.onTearDown(members.Stop)
	if s.patroni, err = patroni.Start(ctx, members.Endpoints(), &patroni.Config{Synchronous: true}); err != nil {
		return err
	}
	s.onTearDown(s.patroni.Stop)
	s.dsn = s.patroni.DSN()
	return nil
}

// FailOver kills the primary of the Postgres servers under Patroni, and returns once another one
// has taken over and all are back. No operation may commit meanwhile: see observe.Observer.Across.
func (s *Environment) FailOver(ctx context.Context) error {
	return s.observer.Across(ctx, func(ctx context.Context) error {
		old, _, err := s.patroni.Leader(ctx)
		if err != nil {
			return err
		}
		if err := patroni.Killed.Inject(ctx, s.patroni, old); err != nil {
			return err
		}
		_, _, err = s.patroni.LeaderAfter(ctx, old)
		return errors.Join(err, patroni.Killed.Revert(ctx, old), s.patroni.Settled(ctx), servers.Poll(ctx, s.connects))
	})
}

// connects fails unless HAProxy leads to a primary.
func (s *Environment) connects(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// createAppRole creates worker.AppRole, with all rights on the workload's own data.
func (s *Environment) createAppRole(ctx context.Context) error {
	if err := postgres.GrantRoles(ctx, s.pool, "", postgres.Roles{App: worker.AppRole}); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, `
do $$
declare
    v_schema text;
begin
    for v_schema in select nspname from pg_namespace where nspname !~ '^pg_' and nspname not in ('information_schema', 'fence') loop
        execute format('grant all on schema %1$I to `+worker.AppRole+`; grant all on all tables in schema %1$I to `+worker.AppRole+`;
            grant all on all sequences in schema %1$I to `+worker.AppRole+`; grant execute on all routines in schema %1$I to `+worker.AppRole+`', v_schema);
    end loop;
end $$`)
	return err
}

// OnData calls Prepare or Check of the workload. A call that doesn't return when its
// context has ended is abandoned.
func (s *Environment) OnData(ctx context.Context, method string, do func(context.Context, *pgxpool.Pool) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Bounds.Data)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		err := fmt.Errorf("chaos: %s ended its goroutine (runtime.Goexit)", method)
		defer func() { ended <- err }()
		err = do(ctx, s.pool)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(s.cfg.Bounds.Grace):
		return fmt.Errorf("%w: %s has not returned %v after the end of its context", ErrHangs, method, s.cfg.Bounds.Grace)
	}
}

// closePool closes the run's pool. It gives up waiting for a connection that the workload
// has kept: that connection ends with its database.
func (s *Environment) closePool(context.Context) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(s.cfg.Bounds.Grace):
	}
	return nil
}

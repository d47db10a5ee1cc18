package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/patroni"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	servers "github.com/fencekit/fencekit/internal/test/testenv/process"
	"github.com/fencekit/fencekit/storage/postgres"
)

// environment is what a run takes place in.
type environment struct {
	Task
	dir      string         // gets the workers' logs
	trace    *history.Trace // gets the events
	etcd     *etcdserver.Cluster
	postgres *pgserver.Server // nil if Postgres is under Patroni
	patroni  *patroni.Cluster // nil if it is not
	client   *clientv3.Client // no fault cuts it off
	dsn      string
	pool     *pgxpool.Pool // no fault cuts it off
	prefix   string
	observer *observe.Observer
	workers  []*seat
	operated int       // operations that the run itself has asked for
	over     sync.Once // records that the faults are over
	checked  error     // what the workload's Check said
	wrong    []error   // what else is wrong with the workload or its processes
	undo     []func(context.Context) error
}

// fail notes what is wrong with the workload or its processes, not with the environment.
func (s *environment) fail(err error) {
	if err != nil {
		s.wrong = append(s.wrong, err)
	}
}

// seat returns a worker by its number; those beyond the last begin again with the first.
func (s *environment) seat(number int) *seat { return s.workers[number%len(s.workers)] }

func (s *environment) onTearDown(undo func(context.Context) error) { s.undo = append(s.undo, undo) }

// setUp makes everything but the workers. tearDown undoes it, also after a failure.
func (s *environment) setUp(ctx context.Context, servers *Servers) (err error) {
	name := fmt.Sprintf("%016x", rand.Uint64())
	s.prefix = "chaos/" + name
	if s.etcd, err = servers.startEtcd(ctx, max(s.Scenario.members, 1)); err != nil {
		return err
	}
	if s.client, err = s.etcd.Client(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.onTearDown(func(context.Context) error { return s.client.Close() })
	if s.Scenario.Patroni {
		err = s.startPatroni(ctx)
	} else if s.postgres, err = servers.startPostgres(ctx); err == nil {
		s.dsn, err = s.postgres.CreateDatabase(ctx, "chaos_"+name)
		s.onTearDown(func(ctx context.Context) error { return s.postgres.DropDatabase(ctx, "chaos_"+name) })
	}
	if err != nil {
		return err
	}
	if s.pool, err = pgxpool.New(context.WithoutCancel(ctx), s.dsn); err != nil {
		return err
	}
	s.onTearDown(func(context.Context) error {
		go s.pool.Close() // which waits for connections that the workload has kept: they end with the database
		return nil
	})
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if err := s.onData(ctx, "Prepare", s.Workload.Prepare); err != nil {
		return fmt.Errorf("%w: Prepare of %q: %w", worker.ErrWorkload, s.Workload.Name(), err)
	}
	return nil
}

func (s *environment) prepare(ctx context.Context) error {
	if s.Group == check.Fenced {
		_, err := postgres.Migrate(ctx, s.pool, "")
		return err
	}
	c, err := worker.ControlNamed(s.Group)
	if err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, c.Tables)
	return err
}

func (s *environment) tearDown(ctx context.Context) (err error) {
	for i := len(s.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, s.undo[i](ctx))
	}
	return err
}

// onData calls Prepare or Check. A call that doesn't return when its context has ended is abandoned.
func (s *environment) onData(ctx context.Context, method string, do func(context.Context, *pgxpool.Pool) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.bounds.data)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- do(ctx, s.pool) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(s.bounds.data + s.bounds.grace):
		return fmt.Errorf("%w: %s has not returned %v after the end of its context", errHangs, method, s.bounds.grace)
	}
}

func (s *environment) createAppRole(ctx context.Context) error {
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

// startPatroni gives Patroni an etcd of its own: faults of the lock service are not its faults.
func (s *environment) startPatroni(ctx context.Context) error {
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

// failOver takes the primary away, in a way that the seed chooses, and returns once another one has taken over and all
// are back. No operation may commit meanwhile.
func (s *environment) failOver(ctx context.Context) error {
	fault := patroni.Faults[s.Seed%uint64(len(patroni.Faults))]
	s.trace.Record(history.Event{Kind: history.Injected, Name: "failover from a primary that was " + fault.Name})
	return s.observer.Across(ctx, func(ctx context.Context) error {
		old, _, err := s.patroni.Leader(ctx)
		if err != nil {
			return err
		}
		if err := fault.Inject(ctx, s.patroni, old); err != nil {
			return err
		}
		_, _, err = s.patroni.LeaderAfter(ctx, old)
		connects := func(ctx context.Context) error { // HAProxy leads to a primary
			conn, err := pgx.Connect(ctx, s.dsn)
			if err != nil {
				return err
			}
			return conn.Close(ctx)
		}
		return errors.Join(err, fault.Revert(ctx, old), s.patroni.Settled(ctx), servers.Poll(ctx, connects))
	})
}

func (s *environment) startWorkers(ctx context.Context) error {
	if s.Scenario.unhindered {
		if err := s.createAppRole(ctx); err != nil {
			return err
		}
	}
	for n := range cmp.Or(s.Scenario.workers, 3) {
		w, err := s.newSeat(n)
		if err != nil {
			return err
		}
		if err := w.start(ctx); err != nil {
			return err
		}
		s.workers = append(s.workers, w)
	}
	return nil
}

// ttl is so long without faults that a stall of the machine takes no lock. In scripts no operations race.
func (t Task) ttl() time.Duration {
	if !t.Faults && t.Scenario.script == nil {
		return 10 * worker.TTL
	}
	return worker.TTL
}

func (s *environment) each(do func(*seat) error) error {
	errs := make([]error, len(s.workers))
	var all sync.WaitGroup
	for i, w := range s.workers {
		all.Go(func() { errs[i] = do(w) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Servers are the servers that successive runs share. Each is started when a run first needs it.
type Servers struct {
	postgres *pgserver.Server
	etcd     map[int]*etcdserver.Cluster // by number of members
}

func (l *Servers) startPostgres(ctx context.Context) (_ *pgserver.Server, err error) {
	if l.postgres == nil {
		l.postgres, err = pgserver.Start(ctx, nil)
	}
	return l.postgres, err
}

func (l *Servers) startEtcd(ctx context.Context, members int) (*etcdserver.Cluster, error) {
	if c := l.etcd[members]; c != nil {
		return c, nil
	}
	c, err := etcdserver.StartCluster(ctx, members, nil)
	if err != nil {
		return nil, err
	}
	if l.etcd == nil {
		l.etcd = map[int]*etcdserver.Cluster{}
	}
	l.etcd[members] = c
	return c, nil
}

// PostgresSource says where the Postgres comes from; empty before it has started.
func (l *Servers) PostgresSource() string {
	if l.postgres == nil {
		return ""
	}
	return l.postgres.Source()
}

// Close stops all servers.
func (l *Servers) Close(ctx context.Context) (err error) {
	if l.postgres != nil {
		err = l.postgres.Stop(ctx)
	}
	for _, c := range l.etcd {
		err = errors.Join(err, c.Stop(ctx))
	}
	*l = Servers{}
	return err
}

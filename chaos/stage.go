package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Stage is where a run takes place: its servers, its data, and its worker
// processes. It is the fault.Site of the run's faults.
type Stage struct {
	// Seed is the run's.
	Seed uint64
	// Group is who is tested: result.Fenced, or a control's name.
	Group string
	// Faults is false if the same is to happen without faults.
	Faults bool

	workload Workload
	bounds   bounds
	dir      string
	story    *story
	etcd     *testenv.EtcdCluster
	postgres *testenv.Postgres
	redis    *redises
	client   *clientv3.Client
	database string
	dsn      string
	pool     *pgxpool.Pool
	prefix   string
	workers  []*process
	operated atomic.Int64
	healing  sync.Once                     // of telling that all faults are over
	failed   []error                       // what is wrong with the workload or its processes
	checked  error                         // what the workload's Check said
	undo     []func(context.Context) error // in reverse
}

// Worker implements fault.Site.
func (s *Stage) Worker(number int) fault.Worker { return s.worker(number) }

func (s *Stage) worker(number int) *process { return s.workers[number%len(s.workers)] }

// Etcd implements fault.Site.
func (s *Stage) Etcd() fault.Etcd { return cluster{s.etcd} }

// Postgres implements fault.Site.
func (s *Stage) Postgres() fault.Postgres { return s.postgres }

// Observer implements fault.Site.
func (s *Stage) Observer() *clientv3.Client { return s.client }

// Locks implements fault.Site. Controls have a prefix of their own.
func (s *Stage) Locks() string {
	if s.Group != result.Fenced {
		return control.Prefix
	}
	return s.prefix
}

// Database implements fault.Site.
func (s *Stage) Database() *pgxpool.Pool { return s.pool }

// setUp makes everything but the worker processes. tearDown undoes it, also after
// a failure.
func (s *Stage) setUp(ctx context.Context, l *lane, members int) (err error) {
	name := fmt.Sprintf("%016x", rand.Uint64())
	s.prefix = "chaos/" + name
	if s.etcd, err = l.startEtcd(ctx, members); err != nil {
		return err
	}
	if s.postgres, err = l.startPostgres(ctx); err != nil {
		return err
	}
	if s.client, err = s.etcd.Client(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.undo = append(s.undo, func(context.Context) error { return s.client.Close() })
	s.database = "chaos_" + name
	if s.dsn, err = s.postgres.CreateDatabase(ctx, s.database); err != nil {
		return err
	}
	s.undo = append(s.undo, func(ctx context.Context) error { return s.postgres.DropDatabase(ctx, s.database) })
	if s.pool, err = pgxpool.New(context.WithoutCancel(ctx), s.dsn); err != nil {
		return err
	}
	s.undo = append(s.undo, s.closePool)
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if err := s.onData(ctx, "Prepare", s.workload.Prepare); err != nil {
		return fmt.Errorf("%w: Prepare of %q: %w", ErrWorkload, s.workload.Name(), err)
	}
	return nil
}

// prepare makes what the group needs.
func (s *Stage) prepare(ctx context.Context) error {
	s.redis = &redises{}
	if s.Group == result.Fenced {
		_, err := postgres.Migrate(ctx, s.pool, "")
		return err
	}
	c, err := control.ByName(s.Group)
	if err != nil {
		return err
	}
	if s.redis, err = startRedises(ctx, c.Needs); err != nil {
		return err
	}
	s.undo = append(s.undo, s.redis.close)
	if c.Prepare == nil {
		return nil
	}
	return c.Prepare(ctx, s.pool)
}

// tearDown undoes setUp.
func (s *Stage) tearDown(ctx context.Context) error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i](ctx))
	}
	return errors.Join(errs...)
}

// hire makes and starts the worker processes, each with links of its own.
func (s *Stage) hire(ctx context.Context, sc Scenario, loops int, pace time.Duration) error {
	if sc.Unhindered {
		if err := s.enrol(ctx); err != nil {
			return err
		}
	}
	for n := range cmp.Or(sc.Workers, 3) {
		p := &process{story: s.story, closeBound: s.bounds.close, log: filepath.Join(s.dir, fmt.Sprintf("w%d.log", n)), spec: spec{
			Worker: fmt.Sprintf("w%d", n), Number: n, Workload: s.workload.Name(), Group: s.Group, Redis: s.redis.addresses(), Prefix: s.prefix,
			TTL: cmp.Or(sc.TTL, TTL), Seed: s.Seed, Lockers: sc.Lockers, Unhindered: sc.Unhindered, Loops: loops, Pace: pace, Within: s.bounds.op,
		}}
		if err := s.link(p); err != nil {
			return err
		}
		s.workers = append(s.workers, p)
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// link makes the links of a worker to the servers.
func (s *Stage) link(p *process) (err error) {
	for _, endpoint := range s.etcd.Endpoints() {
		l, err := netfault.New(strings.TrimPrefix(endpoint, "http://"))
		if err != nil {
			return err
		}
		s.undo = append(s.undo, func(context.Context) error { return l.Close() })
		p.etcd = append(p.etcd, l)
		p.spec.Etcd = append(p.spec.Etcd, "http://"+l.Addr())
	}
	if p.commits, err = pgproxy.New(s.dsn); err != nil {
		return err
	}
	s.undo = append(s.undo, func(context.Context) error { return p.commits.Close() })
	if p.postgres, err = netfault.New(p.commits.Addr()); err != nil {
		return err
	}
	s.undo = append(s.undo, func(context.Context) error { return p.postgres.Close() })
	p.spec.Postgres = strings.Replace(p.commits.DSN(), p.commits.Addr(), p.postgres.Addr(), 1)
	return nil
}

// dismiss ends the worker processes orderly.
func (s *Stage) dismiss() error { return s.each((*process).close) }

// abandon ends them by force, as nothing depends on them any more.
func (s *Stage) abandon() error { return s.each((*process).kill) }

// each does something with all workers at once.
func (s *Stage) each(do func(*process) error) error {
	errs := make([]error, len(s.workers))
	var all sync.WaitGroup
	for i, p := range s.workers {
		all.Go(func() { errs[i] = do(p) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// fails notes what is wrong with the workload or its processes: no fault of the
// machine's.
func (s *Stage) fails(err error) {
	if err != nil {
		s.failed = append(s.failed, err)
	}
}

// text is what an error says; empty if there is none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// crashes says which processes ended without having been told or killed.
func (s *Stage) crashes() error {
	var errs []error
	for _, w := range s.workers {
		errs = append(errs, w.crashes()...)
	}
	return errors.Join(errs...)
}

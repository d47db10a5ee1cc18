// Package environment is what a run takes place in: the servers, the data of its workload,
// the worker processes as the run sees them, and the injection of faults.
package environment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/patroni"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// Environment is what a run takes place in: its servers, its data, and its worker
// processes. It is the fault.Site of the run's faults. Its methods may be called
// concurrently once StartWorkers has returned.
type Environment struct {
	cfg      Config
	etcd     *etcdserver.Cluster
	postgres *pgserver.Server // nil if Postgres is under Patroni
	patroni  *patroni.Cluster // nil if it is not
	service  control.Service  // of a control; nil if it needs none
	client   *clientv3.Client
	dsn      string
	pool     *pgxpool.Pool
	prefix   string
	observer *observe.Observer
	workers  []*Worker
	operated atomic.Int64
	over     sync.Once                     // records that the faults are over
	failed   []error                       // what is wrong with the workload or its processes
	undo     []func(context.Context) error // in reverse
}

// Config is what an Environment is for.
type Config struct {
	Seed     uint64            // of the run
	Group    string            // result.Fenced, or the name of a control
	Faults   bool              // false: the same operations without faults
	Workload workload.Workload // the code under test
	Members  int               // of etcd
	Patroni  bool              // Postgres is the primary of three under Patroni
	Workers  int               // number of worker processes
	TTL      time.Duration     // of their locks
	// Unhindered: nothing but the fence stops a late transaction.
	Unhindered bool
	Bounds     Bounds
	Dir        string         // gets the workers' logs
	Trace      *history.Trace // gets the events
}

// New returns an Environment that is empty before SetUp.
func New(cfg Config) *Environment { return &Environment{cfg: cfg} }

// Seed is the run's.
func (s *Environment) Seed() uint64 { return s.cfg.Seed }

// Group is what is tested: result.Fenced, or a control's name.
func (s *Environment) Group() string { return s.cfg.Group }

// Faults is false if the run is one without faults.
func (s *Environment) Faults() bool { return s.cfg.Faults }

// Workload is the code under test.
func (s *Environment) Workload() workload.Workload { return s.cfg.Workload }

// Trace has the events of the run.
func (s *Environment) Trace() *history.Trace { return s.cfg.Trace }

// Service is what a control needs beside etcd and Postgres; nil if it needs nothing.
func (s *Environment) Service() control.Service { return s.service }

// OperationBound is the time within which an operation has to end, usually.
func (s *Environment) OperationBound() time.Duration { return s.cfg.Bounds.Operation }

// Process returns a worker by its number, as Worker does.
func (s *Environment) Process(number int) *Worker { return s.workers[number%len(s.workers)] }

// onTearDown registers undo to be called by TearDown, the last one first.
func (s *Environment) onTearDown(undo func(context.Context) error) { s.undo = append(s.undo, undo) }

// Observe starts observing the run from outside. The caller must call Finish.
func (s *Environment) Observe(ctx context.Context) (_ *observe.Observer, err error) {
	s.observer, err = observe.Start(ctx, s.client, s.prefix, s.dsn)
	return s.observer, err
}

// Worker implements fault.Site.
func (s *Environment) Worker(number int) fault.Worker { return s.Process(number) }

// Etcd implements fault.Site.
func (s *Environment) Etcd() fault.Etcd { return cluster{s.etcd} }

// Postgres implements fault.Site. Under Patroni there is none: see FailOver.
func (s *Environment) Postgres() fault.Postgres { return s.postgres }

// Observer implements fault.Site.
func (s *Environment) Observer() *clientv3.Client { return s.client }

// Locks implements fault.Site. Controls have a prefix of their own.
func (s *Environment) Locks() string {
	if s.cfg.Group != result.Fenced {
		return control.Prefix
	}
	return s.prefix
}

// Database implements fault.Site.
func (s *Environment) Database() *pgxpool.Pool { return s.pool }

// Fail notes what is wrong with the workload or its processes. It is not for failures of
// the environment.
func (s *Environment) Fail(err error) {
	if err != nil {
		s.failed = append(s.failed, err)
	}
}

// Crashes returns an error for the processes that ended without having been asked to or
// killed.
func (s *Environment) Crashes() error {
	var errs []error
	for _, w := range s.workers {
		errs = append(errs, w.crashes()...)
	}
	return errors.Join(errs...)
}

// Failed is what is wrong with the workload or its processes; nil if nothing is.
func (s *Environment) Failed() error { return errors.Join(s.failed...) }

// ErrHangs: the code under test doesn't end in time. It is not the environment's fault.
var ErrHangs = errors.New("chaos: it hangs")

// Bounds are the times within which the code under test has to end, on a busy machine too.
// What takes longer hangs.
type Bounds struct {
	Operation time.Duration // one operation; its context ends then
	Grace     time.Duration // an operation whose context has ended
	Close     time.Duration // a worker process that was asked to end
	Run       time.Duration // the whole run
	Data      time.Duration // Prepare, and Check; its context ends then
}

// UsualBounds are those of a run outside of tests.
var UsualBounds = Bounds{Operation: time.Minute, Grace: 15 * time.Second, Close: 2 * worker.CloseBound, Run: 8 * time.Minute, Data: 2 * time.Minute}

// WithoutOutcome returns an error if operations had no outcome. The error says how many,
// and why the first one had none.
func (s *Environment) WithoutOutcome() error {
	var first *history.Event
	number := 0
	for _, e := range s.cfg.Trace.Events() {
		if e.Kind == history.Unknown && e.Class == worker.ClassNoOutcome {
			if number++; first == nil {
				first = &e
			}
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("chaos: %d operations of workload %q had no outcome; the first was %s: %s; for its stack see %s.log",
		number, s.cfg.Workload.Name(), first.Op, first.Error, first.Process)
}

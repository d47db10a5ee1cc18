package environment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/pgproxy"
)

// StartWorkers starts the worker processes, each with its own links.
func (s *Environment) StartWorkers(ctx context.Context, workers Workers) error {
	if workers.Unhindered {
		if err := s.createAppRole(ctx); err != nil {
			return err
		}
	}
	for n := range cmp.Or(workers.Number, 3) {
		p := &Worker{trace: s.cfg.Trace, closeBound: s.cfg.Bounds.Close, log: filepath.Join(s.cfg.Dir, fmt.Sprintf("w%d.log", n)), spec: worker.Spec{
			Worker: fmt.Sprintf("w%d", n), Number: n, Workload: s.cfg.Workload.Name(), Group: s.cfg.Group, Redis: s.redis.addresses(), Prefix: s.prefix,
			TTL: workers.TTL, Seed: s.cfg.Seed, Lockers: workers.Lockers, Unhindered: workers.Unhindered, Within: s.cfg.Bounds.Operation,
			Loops: cmp.Or(workers.Loops, loadLoops), Pace: loadPace, Actions: workers.Actions,
			Lots: workers.Lots, Processors: workers.Processors,
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
func (s *Environment) link(p *Worker) (err error) {
	for _, endpoint := range s.etcd.Endpoints() {
		l, err := netfault.New(strings.TrimPrefix(endpoint, "http://"))
		if err != nil {
			return err
		}
		s.OnTearDown(func(context.Context) error { return l.Close() })
		p.etcd = append(p.etcd, l)
		p.spec.Etcd = append(p.spec.Etcd, "http://"+l.Addr())
	}
	if p.commits, err = pgproxy.New(s.dsn); err != nil {
		return err
	}
	s.OnTearDown(func(context.Context) error { return p.commits.Close() })
	if p.postgres, err = netfault.New(p.commits.Addr()); err != nil {
		return err
	}
	s.OnTearDown(func(context.Context) error { return p.postgres.Close() })
	p.spec.Postgres = strings.Replace(p.commits.DSN(), p.commits.Addr(), p.postgres.Addr(), 1)
	return nil
}

// StopWorkers asks the worker processes to end.
func (s *Environment) StopWorkers() error { return s.each((*Worker).Stop) }

// KillWorkers kills the worker processes.
func (s *Environment) KillWorkers() error { return s.each((*Worker).kill) }

// each does something with all workers at once.
func (s *Environment) each(do func(*Worker) error) error {
	errs := make([]error, len(s.workers))
	var all sync.WaitGroup
	for i, p := range s.workers {
		all.Go(func() { errs[i] = do(p) })
	}
	all.Wait()
	return errors.Join(errs...)
}

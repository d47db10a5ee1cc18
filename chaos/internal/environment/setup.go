package environment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/storage/postgres"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SetUp makes everything but the worker processes. TearDown undoes it, also after a
// failure.
func (s *Environment) SetUp(ctx context.Context, servers *Servers, members int) (err error) {
	name := fmt.Sprintf("%016x", rand.Uint64())
	s.prefix = "chaos/" + name
	if s.etcd, err = servers.startEtcd(ctx, members); err != nil {
		return err
	}
	if s.client, err = s.etcd.Client(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.OnTearDown(func(context.Context) error { return s.client.Close() })
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
	s.OnTearDown(s.closePool)
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
	s.OnTearDown(func(ctx context.Context) error { return s.postgres.DropDatabase(ctx, name) })
	return nil
}

// prepare makes what the group needs.
func (s *Environment) prepare(ctx context.Context) error {
	s.redis = &redises{}
	if s.cfg.Group == result.Fenced {
		_, err := postgres.Migrate(ctx, s.pool, "")
		return err
	}
	c, err := control.ByName(s.cfg.Group)
	if err != nil {
		return err
	}
	if s.redis, err = startRedises(ctx, c.Needs); err != nil {
		return err
	}
	s.OnTearDown(s.redis.close)
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

package environment

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/patroni"
	servers "github.com/fencekit/fencekit/internal/testenv/process"
)

// startPatroni starts three Postgres servers under Patroni in synchronous mode, which are the
// run's alone. Patroni has an etcd of its own: faults of the lock service are not its faults.
func (s *Environment) startPatroni(ctx context.Context) error {
	members, err := etcdserver.StartCluster(ctx, 1, nil)
	if err != nil {
		return err
	}
	s.OnTearDown(members.Stop)
	if s.patroni, err = patroni.Start(ctx, members.Endpoints(), &patroni.Config{Synchronous: true}); err != nil {
		return err
	}
	s.OnTearDown(s.patroni.Stop)
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

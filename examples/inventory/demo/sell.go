package demo

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// seller runs an allocation under protection of some kind.
type seller interface {
	sell(ctx context.Context, order service.Order, decide service.Decision) error
	close(ctx context.Context) error
}

// fencedSeller is the way to do it: lock, claim, transaction and seal.
type fencedSeller struct{ guard *guard.Guard[pgx.Tx] }

func (s fencedSeller) sell(ctx context.Context, order service.Order, decide service.Decision) error {
	return guard.Do(ctx, s.guard, service.Resource(order.SKU), func(ctx context.Context, tx pgx.Tx) error {
		_, err := service.Allocate(ctx, tx, order, decide)
		return err
	}, guard.OpID(order.ID), guard.Name("allocate"))
}

func (s fencedSeller) close(ctx context.Context) error { return s.guard.Close(ctx) }

// lockedSeller is the control: the same lock and the same allocation, but the
// database knows nothing of either. This is what most services do today.
type lockedSeller struct {
	locker fence.Locker
	pool   *pgxpool.Pool
	holds  func(fence.Grant) // told of each lock
}

func (s lockedSeller) sell(ctx context.Context, order service.Order, decide service.Decision) (err error) {
	lease, err := s.locker.Acquire(ctx, service.Resource(order.SKU))
	if err != nil {
		return err
	}
	defer func() {
		if released := lease.Release(ctx); !errors.Is(released, fence.ErrUnavailable) { // else it ends with its lease
			err = errors.Join(err, released)
		}
	}()
	s.holds(lease.Grant())
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := service.Allocate(ctx, tx, order, decide)
		return err
	})
}

func (s lockedSeller) close(context.Context) error { return nil }

package worker

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
)

// fenced is the framework itself.
type fenced struct {
	guard  *guard.Guard[pgx.Tx]
	locker *etcd.Locker
	env    *workload.Env
}

func (f *fenced) Do(ctx context.Context, resources []string, work workload.Work, opts []guard.Option) error {
	fn := f.transaction(work)
	if len(resources) == 1 {
		return guard.Do(ctx, f.guard, resources[0], fn, opts...)
	}
	return guard.DoAll(ctx, f.guard, resources, fn, opts...)
}

func (f *fenced) Hold(ctx context.Context, resource string, fn func(context.Context, workload.Transact) error) error {
	return guard.Hold(ctx, f.guard, resource, func(ctx context.Context, h *guard.Held[pgx.Tx]) error {
		return fn(ctx, func(ctx context.Context, work workload.Work, opts ...guard.Option) error {
			return h.Do(ctx, f.transaction(work), opts...)
		})
	})
}

// transaction is work as the framework runs it.
func (f *fenced) transaction(work workload.Work) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		if err := work(ctx, tx, tokens(guard.Grants(ctx)...)); err != nil {
			return err
		}
		f.env.Point(workload.PointWritten)
		return nil
	}
}

func (f *fenced) Close(ctx context.Context) error {
	return errors.Join(f.guard.Close(ctx), f.locker.Close(ctx))
}

func tokens(grants ...fence.Grant) map[string]int64 {
	m := make(map[string]int64, len(grants))
	for _, g := range grants {
		m[g.Resource] = int64(g.Token)
	}
	return m
}

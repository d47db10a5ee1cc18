package worker

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// fenced is Fencekit itself.
type fenced struct {
	guard  *guard.Guard[pgx.Tx]
	locker *etcd.Locker
	env    *workload.Env
}

func (f *fenced) Do(ctx context.Context, resources []string, work workload.Work, opts []guard.ValueOption) error {
	_, err := guard.Value(ctx, f.guard, resources, f.transaction(work), opts...)
	return err
}

// tokenSQL is the token under which a statement on a row s of a resource runs.
const tokenSQL = "(select f.token from fence.resource f where f.name = s.resource)"

func (f *fenced) Batch(ctx context.Context, resource string, batch workload.Batch, opts []guard.ValueOption) error {
	var b postgres.Batch
	for _, s := range batch(tokenSQL) {
		b.Exec(s.SQL, s.Args...).MustAffect(1)
	}
	return guard.Exec(ctx, f.guard, resource, &b, opts...)
}

func (f *fenced) Hold(ctx context.Context, resource string, fn func(context.Context, workload.Transact) error) error {
	return guard.Hold(ctx, f.guard, resource, func(ctx context.Context, h guard.Runner[pgx.Tx]) error {
		return fn(ctx, func(ctx context.Context, work workload.Work, opts ...guard.ValueOption) error {
			_, err := guard.Value(ctx, h, resource, f.transaction(work), opts...)
			return err
		})
	})
}

// transaction is work as Fencekit runs it. It has no value; with guard.Once the
// database keeps that it was done.
func (f *fenced) transaction(work workload.Work) func(context.Context, pgx.Tx) (struct{}, error) {
	return func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		if err := work(ctx, tx, tokens(guard.Grants(ctx)...)); err != nil {
			return struct{}{}, err
		}
		f.env.Point(workload.PointWritten)
		return struct{}{}, nil
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

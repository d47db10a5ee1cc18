package contender

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// guarded is a Guard with what it stands on.
type guarded struct {
	guard  *guard.Guard[pgx.Tx]
	locker *etcd.Locker
	client *clientv3.Client
	pool   *pgxpool.Pool
	store  *postgres.Store
}

func newGuarded(ctx context.Context, t *load.Target, client *clientv3.Client, cfg *guard.Config) (*guarded, error) {
	pool, err := newPool(ctx, t)
	if err != nil {
		return nil, err
	}
	g := &guarded{client: client, pool: pool}
	if g.store, err = postgres.NewStore(pool, nil); err != nil {
		return nil, err
	}
	if g.locker, err = newLocker(t, client); err != nil {
		return nil, err
	}
	g.guard, err = guard.New(g.locker, g.store, cfg)
	return g, err
}

func (g *guarded) close(ctx context.Context) error {
	err := errors.Join(g.guard.Close(ctx), g.locker.Close(ctx))
	g.pool.Close()
	return errors.Join(err, g.client.Close())
}

// Do is guard.Do with a function that reads and writes, as the bare transaction does.
func Do(cfg guard.Config) load.Open {
	return onGuard(cfg, func(ctx context.Context, g *guarded, item load.Item) error {
		fn := func(ctx context.Context, tx pgx.Tx) error { return sell(ctx, tx, readQty, item.SKUs) }
		if len(item.Resources) == 1 {
			return guard.Do(ctx, g.guard, item.Resources[0], fn)
		}
		return guard.Do(ctx, g.guard, item.Resources, fn)
	})
}

// onGuard returns work that does each operation on a Guard.
func onGuard(cfg guard.Config, do func(ctx context.Context, g *guarded, item load.Item) error) load.Open {
	return func(ctx context.Context, t *load.Target) (*load.Work, error) {
		client, err := newEtcd(t)
		if err != nil {
			return nil, err
		}
		g, err := newGuarded(ctx, t, client, &cfg)
		if err != nil {
			return nil, err
		}
		return &load.Work{
			Do:    func(ctx context.Context, goroutine int) error { return do(ctx, g, t.Item(goroutine)) },
			Close: g.close,
		}, nil
	}
}

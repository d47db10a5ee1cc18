package worker

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// AppRole is the role of the workers in scenarios in which none may evict another: it is not
// allowed to terminate backends of the role that they logged in as.
const AppRole = "chaos_app"

// guardBounds are short, so that a worker that is cut off doesn't wait for long.
var guardBounds = guard.Config{StoreTimeout: 3 * time.Second, CommitTimeout: 2 * time.Second, ResolveTimeout: 2 * time.Second}

// etcdTimeout bounds one request, so that a worker that is cut off notices it.
const etcdTimeout = 2 * time.Second

// open connects this process. shut closes the connections, after worker.close.
func (w *worker) open(ctx context.Context) (envs []*workload.Env, shut func(), err error) {
	w.points = &points{record: w.record}
	g := gate{points: w.points}
	cfg, err := pgxpool.ParseConfig(w.spec.Postgres)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = int32(len(w.loops()) + w.spec.Lots + 4)
	cfg.ConnConfig.DialFunc = g.dial
	cfg.ConnConfig.RuntimeParams["application_name"] = w.spec.Worker
	if w.spec.Unhindered {
		cfg.ConnConfig.RuntimeParams["role"] = AppRole
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	if w.spec.Group != result.Fenced {
		return w.openControl(ctx, pool)
	}
	clientCfg := etcd.ClientConfig(w.spec.Etcd...)
	clientCfg.DialOptions = append(clientCfg.DialOptions, grpc.WithChainUnaryInterceptor(g.unary), grpc.WithChainStreamInterceptor(g.stream))
	client, err := clientv3.New(clientCfg)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	shut = func() { _ = client.Close(); pool.Close() } // the process ends anyway
	for range w.lockers() {
		env := w.env(pool)
		if err := w.fence(env, client); err != nil {
			shut()
			return nil, nil, err
		}
		envs = append(envs, env)
	}
	return envs, shut, nil
}

func (w *worker) lockers() int { return max(w.spec.Lockers, 1) }

// env is an Env without protection.
func (w *worker) env(pool *pgxpool.Pool) *workload.Env {
	return &workload.Env{Process: w.spec.Worker, Pool: pool, At: w.points.reach}
}

// fence adds Fencekit to an Env.
func (w *worker) fence(env *workload.Env, client *clientv3.Client) error {
	locker, err := etcd.NewLocker(client, &etcd.Config{Prefix: w.spec.Prefix, TTL: w.spec.TTL, Label: w.spec.Worker, RequestTimeout: etcdTimeout})
	if err != nil {
		return err
	}
	bounds := workload.StoreBounds
	if w.spec.Unhindered {
		bounds.IdleTimeout = time.Hour
	}
	store, err := postgres.NewStore(env.Pool, &bounds)
	if err != nil {
		return err
	}
	cfg := guardBounds
	cfg.Observers = []*guard.Observer{w.observer(w.points)}
	g, err := guard.New(locker, store, &cfg)
	if err != nil {
		return err
	}
	env.Guard, env.Locker, env.Protection = g, locker, &fenced{g, locker, env}
	return nil
}

// openControl makes an Env with a control.
func (w *worker) openControl(ctx context.Context, pool *pgxpool.Pool) ([]*workload.Env, func(), error) {
	c, err := control.ByName(w.spec.Group)
	if err != nil {
		return nil, nil, err
	}
	env := w.env(pool)
	lock, err := c.Open(ctx, control.Servers{Etcd: w.spec.Etcd, Postgres: w.spec.Postgres, Redis: w.spec.Redis, TTL: w.spec.TTL, At: env.Point}, w.spec.Worker)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	env.Protection = &locked{lock: lock, pool: pool, env: env, record: w.record}
	return []*workload.Env{env}, pool.Close, nil
}

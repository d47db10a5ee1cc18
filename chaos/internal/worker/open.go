package worker

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// AppRole is the role of the workers in scenarios in which none may evict another: it is not
// allowed to terminate backends of the role that they logged in as.
const AppRole = "chaos_app"

// guardBounds are short, so that a worker that is cut off doesn't wait for long.
var guardBounds = guard.Config{StoreTimeout: 3 * time.Second, ResolveTimeout: 2 * time.Second}

// open connects this process. shut closes the connections, after worker.close.
func (w *worker) open(ctx context.Context) (shut func(), err error) {
	w.points = &points{record: w.record}
	g := gate{points: w.points}
	cfg, err := pgxpool.ParseConfig(w.spec.Postgres)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(len(w.loops()) + 4)
	cfg.ConnConfig.DialFunc = g.dial
	cfg.ConnConfig.RuntimeParams["application_name"] = w.spec.Worker
	if w.spec.Unhindered {
		cfg.ConnConfig.RuntimeParams["role"] = AppRole
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if w.spec.Group != result.Fenced {
		return w.openControl(ctx, pool)
	}
	clientCfg := etcd.ClientConfig(w.spec.Etcd...)
	clientCfg.DialOptions = append(clientCfg.DialOptions, grpc.WithChainUnaryInterceptor(g.unary))
	client, err := clientv3.New(clientCfg)
	if err != nil {
		pool.Close()
		return nil, err
	}
	shut = func() { _ = client.Close(); pool.Close() } // the process ends anyway
	w.env = w.unprotected(pool)
	if err := w.fence(client); err != nil {
		shut()
		return nil, err
	}
	return shut, nil
}

// unprotected is an Env without protection.
func (w *worker) unprotected(pool *pgxpool.Pool) *workload.Env {
	return &workload.Env{Process: w.spec.Worker, Pool: pool, At: w.points.reach}
}

// fence adds Fencekit to the Env.
func (w *worker) fence(client *clientv3.Client) error {
	env := w.env
	locker, err := etcd.NewLocker(client, &etcd.Config{Prefix: w.spec.Prefix, TTL: w.spec.TTL, Label: w.spec.Worker})
	if err != nil {
		return err
	}
	bounds := workload.StoreBounds
	if w.spec.Unhindered {
		bounds.StatementTimeout = workload.ProgressBound // longer than the pause
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
func (w *worker) openControl(ctx context.Context, pool *pgxpool.Pool) (func(), error) {
	c, err := control.ByName(w.spec.Group)
	if err != nil {
		return nil, err
	}
	lock, err := c.Open(ctx, control.Servers{Etcd: w.spec.Etcd, Postgres: w.spec.Postgres, Service: w.spec.Service, TTL: w.spec.TTL}, w.spec.Worker)
	if err != nil {
		pool.Close()
		return nil, err
	}
	w.env = w.unprotected(pool)
	w.env.Protection = &locked{lock: lock, pool: pool, env: w.env, record: w.record}
	return pool.Close, nil
}

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

// observer records what a worker's Guard reports. Checks never take that for the truth: see
// package history.
func (w *worker) observer(points *points) *guard.Observer {
	return &guard.Observer{
		Acquired: func(_ context.Context, g fence.Grant, _ time.Duration) {
			w.recordGrant(history.Acquired, g)
			points.reach(workload.PointAcquired)
		},
		Claimed: func(_ context.Context, g fence.Grant, _ time.Duration) {
			w.recordGrant(history.Claimed, g)
			points.reach(workload.PointClaimed)
		},
		LeaseLost: func(l *fence.LeaseLostError, _ bool) {
			e := of(history.Lost, l.Grant)
			e.Reason = string(l.Reason)
			w.record(e)
		},
		Released: func(g fence.Grant, err error) {
			e := of(history.Released, g)
			if err != nil {
				e.Error = err.Error()
			}
			w.record(e)
		},
		Rejected: func(_ context.Context, r *guard.RejectedError) { w.record(RejectionEvent(r)) },
		Resolved: w.resolved,
	}
}

// serializationFailure is the SQLSTATE of a serialization failure.
const serializationFailure = "40001"

// RejectionEvent is the event that records a rejection.
func RejectionEvent(r *guard.RejectedError) history.Event {
	e := of(history.Rejected, r.Grant)
	e.Reason, e.Stage, e.Current = string(r.Reason), string(r.Stage), int64(r.Current.Token)
	if r.Err != nil && workload.ClassOf(r.Err) != serializationFailure { // under stricter isolation levels a rejection shows as one
		e.Cause = r.Err.Error()
	}
	if r.RecordErr != nil {
		e.Error = r.RecordErr.Error()
	}
	return e
}

// resolved records how a COMMIT in doubt was resolved, for each of its grants.
func (w *worker) resolved(_ context.Context, grants []fence.Grant, applied bool, err error, _ time.Duration) {
	for _, g := range grants {
		e := of(history.Resolved, g)
		e.Applied = applied
		if err != nil {
			e.Error = err.Error()
		}
		w.record(e)
	}
}

func (w *worker) recordGrant(kind history.Kind, g fence.Grant) { w.record(of(kind, g)) }

func of(kind history.Kind, g fence.Grant) history.Event {
	return history.Event{Kind: kind, Resource: g.Resource, Epoch: g.Epoch, Token: int64(g.Token), Holder: g.Holder}
}

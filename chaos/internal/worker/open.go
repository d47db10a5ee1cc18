package worker

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// AppRole is the role of workers that may not terminate each other's backends.
const AppRole = "chaos_app"

var storeBounds = postgres.Config{StatementTimeout: 1500 * time.Millisecond}

// guardBounds are short, so that a worker that is cut off doesn't wait for long.
var guardBounds = guard.Config{StoreTimeout: 3 * time.Second, ResolveTimeout: 2 * time.Second}

func (w *worker) open(ctx context.Context) error {
	w.points = &points{record: w.record}
	cfg, err := pgxpool.ParseConfig(w.spec.Postgres)
	if err != nil {
		return err
	}
	cfg.MaxConns = int32(quickLoops + len(slowSKUs) + 4)
	cfg.ConnConfig.DialFunc = w.points.dial
	cfg.ConnConfig.RuntimeParams["application_name"] = w.spec.Worker
	if w.spec.Unhindered {
		cfg.ConnConfig.RuntimeParams["role"] = AppRole
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	w.env = &Env{Process: w.spec.Worker, Pool: pool, at: w.points.reach}
	if w.spec.Group == check.Fenced {
		return w.fence()
	}
	control, err := ControlNamed(w.spec.Group)
	if err != nil {
		return err
	}
	acquire, err := control.Open(w.spec.Servers, w.spec.Worker)
	w.env.protection = &locked{acquire, pool, w.points.reach, w.record}
	return err
}

func (w *worker) fence() error {
	env := w.env
	locker, err := w.locker()
	if err != nil {
		return err
	}
	bounds := storeBounds
	if w.spec.Unhindered {
		bounds.StatementTimeout = ProgressBound // longer than the pause
	}
	store, err := postgres.NewStore(env.Pool, &bounds)
	if err != nil {
		return err
	}
	cfg := guardBounds
	cfg.Observers = []*guard.Observer{w.observer()}
	if env.Guard, err = guard.New(locker, store, &cfg); err != nil {
		return err
	}
	env.Locker, env.protection = locker, fenced{env}
	w.close = func(ctx context.Context) error { return errors.Join(env.Guard.Close(ctx), locker.Close(ctx)) }
	return nil
}

// closingLocker is that of any lock service.
type closingLocker interface {
	fence.Locker
	Close(ctx context.Context) error
}

func (w *worker) locker() (closingLocker, error) {
	if w.spec.Beside {
		return pglock.New(w.env.Pool, &pglock.Config{TTL: w.spec.TTL, Label: w.spec.Worker})
	}
	clientCfg := etcd.ClientConfig(w.spec.Etcd...)
	clientCfg.DialOptions = append(clientCfg.DialOptions, grpc.WithChainUnaryInterceptor(w.points.unary))
	client, err := clientv3.New(clientCfg)
	if err != nil {
		return nil, err
	}
	return etcd.New(client, &etcd.Config{Prefix: w.spec.Prefix, TTL: w.spec.TTL, Label: w.spec.Worker})
}

type fenced struct{ env *Env }

func (f fenced) Do(ctx context.Context, resources []string, work Work, opts []guard.ValueOption) error {
	_, err := guard.Value(ctx, f.env.Guard, resources, f.transaction(work), opts...)
	return err
}

func (f fenced) Hold(ctx context.Context, resource string, fn func(context.Context, Transact) error) error {
	return guard.Hold(ctx, f.env.Guard, resource, func(ctx context.Context, h guard.Runner[pgx.Tx]) error {
		return fn(ctx, func(ctx context.Context, work Work, opts ...guard.ValueOption) error {
			_, err := guard.Value(ctx, h, resource, f.transaction(work), opts...)
			return err
		})
	})
}

// transaction has no value; with guard.Once the database keeps that it was done.
func (f fenced) transaction(work Work) func(context.Context, pgx.Tx) (struct{}, error) {
	return func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		tokens := map[string]int64{}
		for _, g := range guard.Grants(ctx) {
			tokens[g.Resource] = int64(g.Token)
		}
		err := work(ctx, tx, tokens)
		if err == nil {
			f.env.Point(PointWritten)
		}
		return struct{}{}, err
	}
}

// observer records what a worker's Guard reports, which checks never take for the truth.
func (w *worker) observer() *guard.Observer {
	return &guard.Observer{
		Acquired: func(_ context.Context, g fence.Grant, _ time.Duration) {
			w.record(eventOf(history.Acquired, g, nil))
			w.points.reach(PointAcquired)
		},
		Claimed: func(_ context.Context, g fence.Grant, _ time.Duration) {
			w.record(eventOf(history.Claimed, g, nil))
			w.points.reach(PointClaimed)
		},
		LeaseLost: func(l *fence.LeaseLostError, _ bool) { w.record(eventOf(history.Lost, l.Grant, l)) },
		Released:  func(g fence.Grant, err error) { w.record(eventOf(history.Released, g, err)) },
		Rejected:  func(_ context.Context, r *guard.RejectedError) { w.record(rejection(r)) },
		Resolved: func(_ context.Context, grants []fence.Grant, applied bool, err error, _ time.Duration) {
			for _, g := range grants {
				e := eventOf(history.Resolved, g, err)
				e.Applied = applied
				w.record(e)
			}
		},
	}
}

func rejection(r *guard.RejectedError) history.Event {
	e := eventOf(history.Rejected, r.Grant, r.RecordErr)
	e.Reason, e.Stage, e.Current = string(r.Reason), string(r.Stage), int64(r.Current.Token)
	var answer *pgconn.PgError
	serialization := errors.As(r.Err, &answer) && answer.Code == "40001" // as which a rejection shows under stricter isolation levels
	if r.Err != nil && !serialization {
		e.Cause = r.Err.Error()
	}
	return e
}

func eventOf(kind history.Kind, g fence.Grant, err error) history.Event {
	return history.Event{Kind: kind, Resource: g.Resource, Epoch: g.Epoch, Token: int64(g.Token), Holder: g.Holder, Error: history.Text(err)}
}

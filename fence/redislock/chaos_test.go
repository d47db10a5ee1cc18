package redislock

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Redis loses all that it has, again and again, while workers are paused and killed. The lock alone loses sales.
func TestChaos_TheFenceHoldsWhereTheLockAloneBreaks(t *testing.T) {
	s := server(t)
	t.Setenv(redisVariable, s.Addr())
	c := client(t, s)
	ctx, stop := context.WithCancel(t.Context())
	var flushing sync.WaitGroup
	defer flushing.Wait()
	defer stop()
	flushing.Go(func() {
		for again := time.Tick(700 * time.Millisecond); ctx.Err() == nil; {
			_ = c.FlushAll(ctx).Err()
			select {
			case <-again:
			case <-ctx.Done():
			}
		}
	})
	run := func(w sales, scenarios ...string) []chaos.Result {
		suite, err := chaos.Run(t.Context(), chaos.Config{Workload: w, Scenarios: scenarios, Groups: []string{chaos.Fenced}, Dir: t.TempDir(), Parallel: 2})
		require.NoError(t, err)
		return suite.Runs
	}
	for _, r := range run(sales{fenced: true}, "pauses", "crashes") {
		for _, f := range r.Findings {
			byEtcd := f.Property == "I7" // that tokens are those of its keys
			require.True(t, byEtcd || f.Status == "held" || f.Status == "irrelevant", "%s: %s: %s %v", &r, f.Property, f.Detail, f.Examples)
		}
	}
	require.Contains(t, run(sales{}, "pauses")[0].Failed, "were sold")
}

// sales sells under the lock, and with the fence or without it.
type sales struct{ fenced bool }

func (s sales) Name() string { return fmt.Sprintf("sales, fenced %v", s.fenced) }

func (sales) Resources() []string { return []string{"sku/1", "sku/2"} }

func (sales) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, "create table sold (sku text, n int); insert into sold values ('sku/1', 0), ('sku/2', 0); create table sale (sku text)")
	return err
}

func (s sales) Operate(ctx context.Context, env *chaos.Env, op chaos.Op) error {
	l, g, err := ofProcess(env.Pool)
	if err != nil {
		return err
	}
	sell := func(ctx context.Context, tx pgx.Tx) error {
		var n int
		if err := tx.QueryRow(ctx, "select n from sold where sku = $1", op.Resource).Scan(&n); err != nil {
			return err
		}
		env.Point(chaos.PointRead)
		if _, err := tx.Exec(ctx, "update sold set n = $2 where sku = $1", op.Resource, n+1); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into sale values ($1)", op.Resource)
		return err
	}
	if s.fenced {
		return guard.Do(ctx, g, op.Resource, sell)
	}
	lease, err := l.Acquire(ctx, op.Resource)
	if err != nil {
		return err
	}
	defer lease.Release(context.WithoutCancel(ctx))
	return pgx.BeginFunc(ctx, env.Pool, func(tx pgx.Tx) error { return sell(ctx, tx) })
}

func (sales) Check(ctx context.Context, db *pgxpool.Pool) error {
	var sold, sales int
	err := db.QueryRow(ctx, "select sum(n), (select count(*) from sale) from sold").Scan(&sold, &sales)
	if err == nil && sold != sales {
		err = fmt.Errorf("%d were sold, in %d sales", sold, sales)
	}
	return err
}

var process struct {
	sync.Mutex
	locker *Locker
	guard  *guard.Guard[pgx.Tx]
}

// ofProcess returns what a worker process has until it ends.
func ofProcess(pool *pgxpool.Pool) (*Locker, *guard.Guard[pgx.Tx], error) {
	p := &process
	p.Lock()
	defer p.Unlock()
	if p.guard != nil {
		return p.locker, p.guard, nil
	}
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(redisVariable)})
	l, err := New(client, &Config{Prefix: pool.Config().ConnConfig.Database, TTL: 2 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	store, err := postgres.NewStore(pool, &postgres.Config{StatementTimeout: 1500 * time.Millisecond})
	if err != nil {
		return nil, nil, err
	}
	p.locker = l
	p.guard, err = guard.New(l, store, &guard.Config{StoreTimeout: 3 * time.Second, ResolveTimeout: 2 * time.Second})
	return l, p.guard, err
}

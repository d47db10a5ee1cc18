// Package sales runs chaos on a lock service that package chaos doesn't have.
package sales

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Workload sells under a lock, and with the fence or without it.
type Workload struct {
	Fenced bool
	// New returns the Locker of a worker process.
	New func(*pgxpool.Pool) (fence.Locker, error)
}

// Main is TestMain of a package that calls Test with the same function.
func Main(m *testing.M, locker func(*pgxpool.Pool) (fence.Locker, error)) {
	chaos.Main(m, Workload{New: locker}, Workload{Fenced: true, New: locker})
}

// Test pauses and kills workers. The fence has to hold where the lock alone loses sales.
func Test(t *testing.T, locker func(*pgxpool.Pool) (fence.Locker, error)) {
	run := func(fenced bool, scenarios ...string) []chaos.Result {
		suite, err := chaos.Run(t.Context(), chaos.Config{
			Workload: Workload{fenced, locker}, Scenarios: scenarios, Groups: []string{chaos.Fenced}, Dir: t.TempDir(), Parallel: 2,
		})
		require.NoError(t, err)
		return suite.Runs
	}
	for _, r := range run(true, "pauses", "crashes") {
		for _, f := range r.Findings {
			byEtcd := f.Property == "I7" // that tokens are those of its keys
			require.True(t, byEtcd || f.Status == "held" || f.Status == "irrelevant", "%s: %s: %s %v", r, f.Property, f.Detail, f.Examples)
		}
	}
	require.Contains(t, run(false, "pauses")[0].Failed, "were sold")
}

func (w Workload) Name() string { return fmt.Sprintf("sales, fenced %v", w.Fenced) }

func (Workload) Resources() []string { return []string{"sku/1", "sku/2"} }

func (Workload) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, "create table sold (sku text, n int); insert into sold values ('sku/1', 0), ('sku/2', 0); create table sale (sku text)")
	return err
}

func (w Workload) Operate(ctx context.Context, env *chaos.Env, op chaos.Op) error {
	l, g, err := w.ofProcess(env.Pool)
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
	if w.Fenced {
		return guard.Do(ctx, g, op.Resource, sell)
	}
	lease, err := l.Acquire(ctx, op.Resource)
	if err != nil {
		return err
	}
	defer lease.Release(context.WithoutCancel(ctx))
	return pgx.BeginFunc(ctx, env.Pool, func(tx pgx.Tx) error { return sell(ctx, tx) })
}

func (Workload) Check(ctx context.Context, db *pgxpool.Pool) error {
	var sold, sales int
	err := db.QueryRow(ctx, "select sum(n), (select count(*) from sale) from sold").Scan(&sold, &sales)
	if err == nil && sold != sales {
		err = fmt.Errorf("%d were sold, in %d sales", sold, sales)
	}
	return err
}

var process struct {
	sync.Mutex
	locker fence.Locker
	guard  *guard.Guard[pgx.Tx]
}

// ofProcess returns what a worker process has until it ends.
func (w Workload) ofProcess(pool *pgxpool.Pool) (fence.Locker, *guard.Guard[pgx.Tx], error) {
	p := &process
	p.Lock()
	defer p.Unlock()
	if p.guard != nil {
		return p.locker, p.guard, nil
	}
	l, err := w.New(pool)
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

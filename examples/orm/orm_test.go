package orm

import (
	"context"
	"database/sql"
	_ "embed"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	fencepg "github.com/fencekit/fencekit/storage/postgres"
)

//go:embed schema.sql
var schema string

func TestMain(m *testing.M) { testenv.Main(m) }

var template = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := fencepg.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, schema+"insert into stock values ('42', 5)")
	return err
}}

// shop is a database with 5 of product 42.
type shop struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *fencepg.Store
}

func newShop(t *testing.T) *shop {
	t.Parallel()
	pool, err := pgxpool.New(context.Background(), template.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := fencepg.NewStore(pool, nil)
	require.NoError(t, err)
	return &shop{t, pool, store}
}

// rows are all that a sale or a job may write.
type rows struct{ Qty, Events, Jobs, Reorders int64 }

func (s *shop) rows(ctx context.Context) (r rows, err error) {
	err = s.pool.QueryRow(ctx, `select (select qty from stock), (select count(*) from outbox), (select count(*) from river_job), (select count(*) from reorder)`).
		Scan(&r.Qty, &r.Events, &r.Jobs, &r.Reorders)
	return r, err
}

func (s *shop) require(want rows) {
	s.t.Helper()
	got, err := s.rows(s.t.Context())
	require.NoError(s.t, err)
	require.Equal(s.t, want, got)
}

type sell = func(ctx context.Context, db *sql.DB, sku string, n int64) error

// baseGORM is the *gorm.DB that a service has, on its own pool. GORM writes through that where it isn't bound.
func baseGORM(t *testing.T, pool *pgxpool.Pool, config *gorm.Config) *gorm.DB {
	t.Helper()
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	config.Logger = logger.Discard
	config.PrepareStmtTTL = noExpiry // the goroutines that TestMain looks for can then only be those of a bound GORM
	base, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), config)
	require.NoError(t, err)
	return base
}

func sales(t *testing.T, s *shop) map[string]sell {
	return map[string]sell{"GORM": GORM(baseGORM(t, s.pool, &gorm.Config{})), "database/sql": SellSQL}
}

func TestSales_WriteStockAndOutboxTogether(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"GORM", "database/sql"} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			sell := sales(t, s)[name]
			g := guardtest.New(t, s.store)
			require.NoError(t, Guarded(t.Context(), g, "42", 2, sell))
			s.require(rows{Qty: 3, Events: 1})
			require.ErrorIs(t, Guarded(t.Context(), g, "42", 4, sell), ErrSoldOut)
			s.require(rows{Qty: 3, Events: 1})
			_, err := s.pool.Exec(t.Context(), "alter table outbox add constraint no_more check (id < 2)")
			require.NoError(t, err)
			require.ErrorContains(t, Guarded(t.Context(), g, "42", 1, sell), "23514")
			s.require(rows{Qty: 3, Events: 1})
		})
	}
}

func TestSales_AreFenced(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"GORM", "database/sql"} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			sell := sales(t, s)[name]
			guardtest.RequireFenced(t, s.store, "sku/42", func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
				return Guarded(ctx, p.Guard, "42", 1, sell)
			}, s.rows)
		})
	}
}

func TestRiver_SaleIsFenced(t *testing.T) {
	s := newShop(t)
	client, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{})
	require.NoError(t, err)
	guardtest.RequireFenced(t, s.store, "sku/42", func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
		return SellRiver(ctx, p.Guard, client, "42", 1)
	}, s.rows)
}

// work starts a client that works jobs with worker until the test ends.
func (s *shop) work(worker river.Worker[Reorder]) *river.Client[pgx.Tx] {
	workers := river.NewWorkers()
	river.AddWorker(workers, worker)
	client, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2}},
		JobTimeout: -1, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(s.t, err)
	require.NoError(s.t, client.Start(context.Background()))
	s.t.Cleanup(func() { require.NoError(s.t, client.Stop(context.Background())) })
	return client
}

// A job whose sale's grant has been superseded before it is worked has written nothing, and is not tried again.
func TestRiver_JobsWorkUnderTheGrantOfTheirSale(t *testing.T) {
	s := newShop(t)
	inserter, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{})
	require.NoError(t, err)
	locks := guardtest.NewLockService()
	earlierSeller, err := guard.New(locks.NewLocker("earlier"), s.store, nil)
	require.NoError(t, err)
	require.NoError(t, SellRiver(t.Context(), earlierSeller, inserter, "42", 1))
	require.NoError(t, earlierSeller.Close(t.Context()))
	seller, err := guard.New(locks.NewLocker("later"), s.store, nil)
	require.NoError(t, err)
	defer seller.Close(context.Background())
	require.NoError(t, SellRiver(t.Context(), seller, inserter, "42", 1))
	s.require(rows{Qty: 3, Jobs: 2})

	receiver, err := guard.New(nil, s.store, nil)
	require.NoError(t, err)
	defer receiver.Close(context.Background())
	s.work(&Reorderer{Guard: receiver})
	require.Eventually(t, func() (ended bool) {
		err := s.pool.QueryRow(t.Context(), "select count(*) = 2 from river_job where finalized_at is not null").Scan(&ended)
		return err == nil && ended
	}, time.Minute, 10*time.Millisecond)
	var earlier, later string
	require.NoError(t, s.pool.QueryRow(t.Context(), "select min(state::text) filter (where id = 1), min(state::text) filter (where id = 2) from river_job").Scan(&earlier, &later))
	require.Equal(t, []string{"cancelled", "completed"}, []string{earlier, later})
	s.require(rows{Qty: 3, Jobs: 2, Reorders: 1})
	require.NoError(t, SellRiver(t.Context(), seller, inserter, "42", 1))
}

// shown works each job as the test says.
type shown struct {
	river.WorkerDefaults[Reorder]
	next chan func(ctx context.Context, job *river.Job[Reorder]) error
}

func (s *shown) Work(ctx context.Context, job *river.Job[Reorder]) error { return (<-s.next)(ctx, job) }

func TestRiver_WorkerIsFenced(t *testing.T) {
	s := newShop(t)
	worker := &shown{next: make(chan func(context.Context, *river.Job[Reorder]) error, 1)}
	client := s.work(worker)
	guardtest.RequireFenced(t, s.store, "sku/42", func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
		done := make(chan error, 1)
		worker.next <- func(ctx context.Context, job *river.Job[Reorder]) error {
			err := (&Reorderer{Guard: p.Guard}).Work(ctx, job)
			done <- err
			return err
		}
		if _, err := client.Insert(ctx, Reorder{SKU: "42", Grant: p.Grants[0]}, nil); err != nil {
			return err
		}
		return <-done
	}, func(ctx context.Context) (n int64, err error) {
		all, err := s.rows(ctx)
		return all.Reorders, err
	})
}

package jobs_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/jobs"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) {
	if of := os.Getenv(workerVariable); of != "" {
		fenced, dsn, _ := strings.Cut(of, " ")
		log.Fatal(ofWorker(fenced == "true", dsn))
	}
	testenv.Main(m)
}

// job is a row of the table that the tests work off. effect has a row for each time that a job's last transaction took
// effect.
type job struct {
	ID      int64
	Attempt int
}

const tables = `
	create table job (id bigint primary key, status text not null default 'open', attempt int not null default 0, run_at timestamptz not null default now());
	create index on job (status, id);
	create table effect (job bigint not null)`

const next = "select id, attempt from job where status = 'open' and run_at <= now() and fence.free('job/' || id) order by id for update skip locked"

func database(t testing.TB, n int) *pgxpool.Pool {
	dsn := pgserver.Database(t)
	pool := connect(t, dsn)
	_, err := postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	mustExec(t, pool, tables)
	mustExec(t, pool, "insert into job (id) select generate_series(1, $1)", n)
	return pool
}

func connect(t testing.TB, dsn string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.MaxConns = 10
	for _, option := range options {
		option(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func mustExec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from "+sql, args...).Scan(&n))
	return n
}

func locker(t testing.TB, pool *pgxpool.Pool) *pglock.Locker {
	// A process that isn't told must not notice by itself that a test has ended its session.
	l, err := pglock.New(pool, &pglock.Config{TTL: 5 * time.Minute})
	require.NoError(t, err)
	return l
}

// process is like one of its own: it has a pool, a lock service and a Guard.
func process(t testing.TB, pool *pgxpool.Pool, options ...func(*pgxpool.Config)) *fencekit.Client {
	own := connect(t, pool.Config().ConnString(), options...)
	g, err := fencekit.New(own, &fencekit.Config{Locker: locker(t, own)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}

// expire has the effect of all who own something having stood still until their sessions were over.
func expire(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, "update fence.lock_session set expires_at = clock_timestamp() where id in (select session from fence.lock)")
}

// appRole returns the option of a pool that logs in under an app role.
func appRole(t testing.TB, pool *pgxpool.Pool) func(*pgxpool.Config) {
	role := fmt.Sprintf("app_%016x", rand.Uint64())
	require.NoError(t, postgres.GrantRoles(t.Context(), pool, "", postgres.Roles{App: role}))
	mustExec(t, pool, "alter role "+role+" login; grant all on job, effect to "+role)
	t.Cleanup(func() {
		_, _ = pool.Exec(context.Background(), "drop owned by "+role+"; drop role "+role)
	})
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.User = role }
}

func queue(workers int) jobs.Queue[job] {
	return jobs.Queue[job]{
		Name: "job", Next: next, Workers: workers, Poll: 20 * time.Millisecond, Pause: 100 * time.Millisecond,
		Key: func(j job) string { return key(j.ID) },
	}
}

// finish is the last transaction of a job.
func finish(ctx context.Context, j jobs.Job[job]) error {
	return guard.Do(ctx, j, j.Resource, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "with done as (update job set status = 'done' where id = $1 returning id) insert into effect select id from done", j.Row.ID)
		return err
	})
}

// countAttempt is for Queue.Taken.
func countAttempt(ctx context.Context, tx pgx.Tx, rows []job) error {
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	_, err := tx.Exec(ctx, "update job set attempt = attempt + 1 where id = any($1)", ids)
	return err
}

// shop returns a database with an invoice.
func shop() (pool *pgxpool.Pool, done func()) {
	ctx := context.Background()
	dsn, err := pgserver.Shared(&exampleTB{}).CreateDatabase(ctx, fmt.Sprintf("shop_%016x", rand.Uint64()))
	if err != nil {
		log.Fatal(err)
	}
	if pool, err = pgxpool.New(ctx, dsn); err != nil {
		log.Fatal(err)
	}
	if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `create table invoice (id bigint primary key, amount int not null, status text not null default 'open',
		priority int not null default 0, tries int not null default 0, not_before timestamptz not null default now());
		insert into invoice (id, amount) values (7, 120)`); err != nil {
		log.Fatal(err)
	}
	return pool, pool.Close
}

// exampleTB lets an Example, which has no testing.TB, use the shared servers.
type exampleTB struct{ testing.TB }

func (*exampleTB) Helper()                           {}
func (*exampleTB) Logf(format string, args ...any)   { log.Printf(format, args...) }
func (*exampleTB) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (*exampleTB) Fatal(args ...any)                 { log.Fatal(args...) }

// start calls Work until the test ends.
func start(t testing.TB, g *fencekit.Client, q jobs.Queue[job], do func(ctx context.Context, j jobs.Job[job]) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- jobs.Work(ctx, g, q, do) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Work: %v", err)
		}
	})
}

// await waits until as many rows are there.
func await(t testing.TB, pool *pgxpool.Pool, from string, want int) {
	t.Helper()
	require.Eventually(t, func() bool { return count(t, pool, from) == want }, time.Minute, 5*time.Millisecond, "%d of %s", want, from)
}

// work works until no job is open.
func work(t *testing.T, pool *pgxpool.Pool, q jobs.Queue[job], do func(ctx context.Context, j jobs.Job[job]) error, on ...*fencekit.Client) {
	t.Helper()
	t.Run("work", func(t *testing.T) {
		for _, g := range on {
			start(t, g, q, do)
		}
		await(t, pool, "job where status = 'open'", 0)
	})
}

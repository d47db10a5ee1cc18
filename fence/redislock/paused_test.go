package redislock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

const (
	redisVariable    = "REDISLOCK_TEST_REDIS"
	postgresVariable = "REDISLOCK_TEST_POSTGRES"
	fencedVariable   = "REDISLOCK_TEST_FENCED"
)

var template = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "create table stock (qty int); insert into stock values (3); create table sale (n int)")
	return err
}}

// A worker is stopped, as by a long GC, between what it reads and what it writes, until its lock has expired and
// another worker has sold all. Without the fence it oversells; with it, the same lock is safe.
func TestPause_TheSameLockOversellsWithoutTheFence(t *testing.T) {
	t.Parallel()
	s := server(t)
	for fenced, sold := range map[bool]int{false: 5, true: 3} {
		t.Run(fmt.Sprintf("fenced %v", fenced), func(t *testing.T) {
			t.Parallel()
			dsn := template.Database(t)
			pool, err := pgxpool.New(patient(t), dsn)
			require.NoError(t, err)
			defer pool.Close()

			paused := exec.CommandContext(patient(t), os.Args[0], "-test.run=^TestWorker$")
			paused.Env = append(os.Environ(), redisVariable+"="+s.Addr(), postgresVariable+"="+dsn, fmt.Sprintf("%s=%v", fencedVariable, fenced))
			var out bytes.Buffer // written by Start's own goroutine until Wait
			paused.Stdout, paused.Stderr = &out, &out
			require.NoError(t, paused.Start())
			var status syscall.WaitStatus
			_, err = syscall.Wait4(paused.Process.Pid, &status, syscall.WUNTRACED, nil)
			require.NoError(t, err)
			require.True(t, status.Stopped(), "the worker ended: %v", status)

			require.NoError(t, sell(patient(t), s.Addr(), pool, fenced, 3, func() {})) // waits until the lock has expired
			require.NoError(t, paused.Process.Signal(syscall.SIGCONT))
			err = paused.Wait()
			require.Equal(t, fenced, err != nil, "the paused worker: %v\n%s", err, &out)
			var got int
			require.NoError(t, pool.QueryRow(patient(t), "select sum(n) from sale").Scan(&got))
			require.Equal(t, sold, got, "of three")
			if fenced {
				var rejected int
				require.NoError(t, pool.QueryRow(patient(t), "select count(*) from fence.rejection").Scan(&rejected))
				require.Equal(t, 1, rejected, "%s", &out)
			}
		})
	}
}

// TestWorker is the worker that is stopped, in a process of its own.
func TestWorker(t *testing.T) {
	dsn := os.Getenv(postgresVariable)
	if dsn == "" {
		return
	}
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	stop := func() { require.NoError(t, pause.Self()) }
	require.NoError(t, sell(t.Context(), os.Getenv(redisVariable), pool, os.Getenv(fencedVariable) == "true", 2, stop))
}

func sell(ctx context.Context, redisAddr string, pool *pgxpool.Pool, fenced bool, n int, afterRead func()) error {
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer client.Close()
	l, err := New(client, &Config{Prefix: pool.Config().ConnConfig.Database, TTL: time.Second})
	if err != nil {
		return err
	}
	defer l.Close(context.WithoutCancel(ctx))
	work := func(ctx context.Context, tx pgx.Tx) error {
		var qty int
		if err := tx.QueryRow(ctx, "select qty from stock").Scan(&qty); err != nil {
			return err
		}
		afterRead()
		if qty < n {
			return errors.New("sold out")
		}
		if _, err := tx.Exec(ctx, "update stock set qty = $1", qty-n); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into sale values ($1)", n)
		return err
	}
	if fenced {
		store, err := postgres.NewStore(pool, &postgres.Config{StatementTimeout: time.Minute}) // the fence alone has to stop it
		if err != nil {
			return err
		}
		g, err := guard.New(l, store, nil)
		if err != nil {
			return err
		}
		defer g.Close(context.WithoutCancel(ctx))
		return guard.Do(ctx, g, "sku/42", work)
	}
	lease, err := l.Acquire(ctx, "sku/42")
	if err != nil {
		return err
	}
	defer lease.Release(context.WithoutCancel(ctx))
	return pgx.BeginFunc(context.WithoutCancel(ctx), pool, func(tx pgx.Tx) error { return work(context.WithoutCancel(ctx), tx) })
}

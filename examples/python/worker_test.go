package python_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// workerVar is the environment variable with the workerSpec of a child that is the Go worker.
const workerVar = "FENCEKIT_PYTHON_WORKER"

// stopSignal has it end after its present call.
const stopSignal = syscall.SIGTERM

type workerSpec struct{ Endpoint, DSN, Prefix string }

// beWorker is the Go worker's whole main: it counts up, and prints what came of each call. It
// returns the exit code.
func beWorker(text string) int {
	var spec workerSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = work(context.Background(), spec)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

func work(ctx context.Context, spec workerSpec) error {
	stop, cancel := signal.NotifyContext(ctx, stopSignal)
	defer cancel()
	client, err := clientv3.New(etcd.ClientConfig(spec.Endpoint))
	if err != nil {
		return err
	}
	defer client.Close()
	pool, err := pgxpool.New(ctx, spec.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	locker, err := etcd.NewLocker(client, &etcd.Config{Prefix: spec.Prefix, TTL: ttl, Label: "worker"})
	if err != nil {
		return err
	}
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		return err
	}
	g, err := guard.New(locker, store, nil)
	if err != nil {
		return err
	}
	for stop.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, bound)
		fmt.Println(outcome(guard.Do(bounded, g, "counter", slowly, guard.Name("go"))))
		cancel()
	}
	closing, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	_ = g.Close(closing) // a lease that was lost in a pause is no concern of the test's
	_ = locker.Close(closing)
	return nil
}

// slowly is increment with a decision that takes time.
func slowly(ctx context.Context, tx pgx.Tx) error {
	var value int64
	if err := tx.QueryRow(ctx, "select value from counter").Scan(&value); err != nil {
		return err
	}
	time.Sleep(20 * time.Millisecond)
	_, err := tx.Exec(ctx, "update counter set value = $1", value+1)
	return err
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "committed"
	case errors.Is(err, guard.ErrUnknownOutcome):
		return "unknown"
	case errors.Is(err, guard.ErrStaleToken):
		return "rejected: stale"
	case errors.As(err, new(*guard.RejectedError)):
		return "rejected"
	}
	return "failed"
}

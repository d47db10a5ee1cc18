package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/storage/postgres"
)

// workerVar is the environment variable with the workerSpec of a child that is a worker.
const workerVar = "FENCEKIT_SOAK_WORKER"

// stopSignal asks a worker to stop itself in its next transaction.
const stopSignal = syscall.SIGUSR1

// workerName is the application_name of workers' connections.
const workerName = "soak-worker"

// The worker's times. What bounds a transaction is below the lease's time to live,
// as postgres.Config asks for.
const (
	workerTTL      = 3 * time.Second
	resolveTimeout = time.Second
	opTimeout      = 3 * time.Minute
)

// workerSpec says what a worker does: count operations, from number first on.
type workerSpec struct {
	Worker, First, Count, Goroutines int
	Endpoint, DSN, Prefix            string
	Seed                             uint64
}

// event is what a worker tells, a line of JSON each.
type event struct {
	Kind    eventKind
	Op      string  `json:",omitempty"`
	Outcome outcome `json:",omitempty"` // of an end
	Applied bool    `json:",omitempty"` // of an answer
	Err     string  `json:",omitempty"`
	Class   string  `json:",omitempty"` // of Err
	Late    bool    `json:",omitempty"` // the operation's context had ended
	Runs    int     `json:",omitempty"` // of a finish
	Took    int64   `json:",omitempty"` // ms
	Reason  string  `json:",omitempty"` // of a rejection, or of a lost lease
}

type eventKind string

const (
	opBegins  eventKind = "begins"
	opEnds    eventKind = "ends"
	opAnswer  eventKind = "answer" // of Resolve, for an unknown outcome
	opRuns    eventKind = "runs"
	opStops   eventKind = "stops" // its process stops
	rejected  eventKind = "rejected"
	leaseLost eventKind = "lease lost"
	resolved  eventKind = "resolved"
)

type outcome string

const (
	committed outcome = "committed"
	failed    outcome = "failed"
	unknown   outcome = "unknown"
)

// worker is a process of a service.
type worker struct {
	spec  workerSpec
	guard *guard.Guard[pgx.Tx]
	stops <-chan os.Signal // to stop in the midst of a transaction

	mu    sync.Mutex // of standard output
	begun int
}

// beWorker is a worker's whole main. It returns the exit code.
func beWorker(text string) int {
	var spec workerSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = (&worker{spec: spec}).work(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak: worker:", err)
		return 1
	}
	return 0
}

func (w *worker) work(ctx context.Context) error {
	client, err := clientv3.New(etcd.ClientConfig(w.spec.Endpoint))
	if err != nil {
		return err
	}
	defer client.Close()
	pool, err := newPool(ctx, w.spec.DSN, w.spec.Goroutines+2, workerName)
	if err != nil {
		return err
	}
	defer pool.Close()
	locker, err := etcd.NewLocker(client, &etcd.Config{Prefix: w.spec.Prefix, TTL: workerTTL, Label: label(w.spec.Worker)})
	if err != nil {
		return err
	}
	store, err := postgres.NewStore(pool, &postgres.Config{LockTimeout: time.Second, StatementTimeout: 2 * time.Second, IdleTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	w.guard, err = guard.New(locker, store, &guard.Config{ResolveTimeout: resolveTimeout, Observers: []*guard.Observer{w.observer()}})
	if err != nil {
		return err
	}
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, stopSignal)
	defer signal.Stop(stops)
	w.stops = stops
	w.runAll(ctx)
	closing, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	return errors.Join(w.guard.Close(closing), locker.Close(closing))
}

// label begins the holder of all grants of a worker.
func label(worker int) string { return fmt.Sprintf("worker-%d", worker) }

// newPool returns a pool of up to size connections that call themselves name.
func newPool(ctx context.Context, dsn string, size int, name string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(size)
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	return pgxpool.NewWithConfig(ctx, cfg)
}

func (w *worker) runAll(ctx context.Context) {
	var all sync.WaitGroup
	for range w.spec.Goroutines {
		all.Go(func() {
			for id, more := w.begin(); more; id, more = w.begin() {
				w.runOne(ctx, id)
			}
		})
	}
	all.Wait()
}

// begin returns the id of the next operation, and tells that it begins: so those
// that were begun have no gap.
func (w *worker) begin() (id string, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun == w.spec.Count {
		return "", false
	}
	id = fmt.Sprintf("%d.%d", w.spec.Worker, w.spec.First+w.begun)
	w.begun++
	w.write(event{Kind: opBegins, Op: id})
	return id, true
}

func (w *worker) runOne(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	t := planned(w.spec.Seed, id)
	start := time.Now()
	err := guard.Do(ctx, w.guard, t.accounts, func(ctx context.Context, tx pgx.Tx) error { return t.run(ctx, tx, func() error { return w.pause(id) }) }, guard.OpID(id), guard.Retryable())
	e := event{Kind: opEnds, Op: id, Outcome: committed, Took: time.Since(start).Milliseconds()}
	if err != nil {
		e.Outcome, e.Err, e.Class, e.Late = failed, fmt.Sprintf("%.1000s", err), classOf(err), ctx.Err() != nil
	}
	var doubt *guard.UnknownOutcomeError
	if errors.As(err, &doubt) {
		e.Outcome = unknown
		w.report(e)
		w.ask(ctx, id, doubt)
		return
	}
	w.report(e)
}

// pause stops this process, if that was asked for.
func (w *worker) pause(op string) error {
	select {
	case <-w.stops:
		w.report(event{Kind: opStops, Op: op})
		return pause.Self()
	default:
		return nil
	}
}

// classOf is the kind of an error, for the counts: the SQLSTATE, or what it is.
func classOf(err error) string {
	state := new(pgconn.PgError)
	switch {
	case errors.Is(err, guard.ErrStaleToken):
		return "a stale token"
	case errors.Is(err, guard.ErrOvertaken):
		return "an overtaken grant"
	case errors.As(err, &state):
		return state.Code
	case errors.Is(err, fence.ErrLeaseLost):
		return "a lost lease"
	case errors.Is(err, fence.ErrUnavailable):
		return "an unavailable lock service"
	case errors.Is(err, context.DeadlineExceeded):
		return "an ended context"
	}
	return "another error"
}

// ask asks again about an unknown outcome, until there is an answer.
func (w *worker) ask(ctx context.Context, id string, doubt *guard.UnknownOutcomeError) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if applied, err := doubt.Resolve(ctx); err == nil {
			w.report(event{Kind: opAnswer, Op: id, Applied: applied})
			return
		}
		<-tick.C
	}
}

func (w *worker) observer() *guard.Observer {
	return &guard.Observer{
		Rejected: func(_ context.Context, r *guard.RejectedError) {
			w.report(event{Kind: rejected, Reason: string(r.Reason) + " at " + string(r.Stage)})
		},
		LeaseLost: func(l *fence.LeaseLostError, _ bool) { w.report(event{Kind: leaseLost, Reason: string(l.Reason)}) },
		Resolved: func(_ context.Context, _ []fence.Grant, applied bool, err error, _ time.Duration) {
			if err == nil {
				w.report(event{Kind: resolved, Applied: applied})
			}
		},
		Finished: func(_ context.Context, f guard.Operation) {
			if f.Runs > 1 {
				w.report(event{Kind: opRuns, Op: f.Record.ID, Runs: f.Runs})
			}
		},
	}
}

func (w *worker) report(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(e)
}

// write writes one line in one piece: a worker that is killed leaves only whole
// lines.
func (w *worker) write(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // it has only text and numbers
	}
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		os.Exit(2) // no reader is left
	}
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// act is one run of the demo's schedule: three workers sell the product, the
// first is stopped between its read and its write, the others sell what is left,
// the first goes on.
type act struct {
	fenced   bool
	etcd     *etcdserver.Server
	postgres *pgserver.Server
	story    *story
}

// result is what the database says after an act.
type result struct {
	stock      service.Stock
	rejections []storage.Rejection
}

// pauseAt is how many units are available, at most, when the first worker stops.
const pauseAt = 60

// actTimeout is far above what an act takes.
const actTimeout = 2 * time.Minute

func (a *act) name() string {
	if a.fenced {
		return "fenced"
	}
	return "unfenced"
}

func (a *act) play(ctx context.Context) (r result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, actTimeout, errors.New("the act took too long"))
	defer cancel()
	err = withDatabase(ctx, a.postgres, a.name(), func(dsn string) error {
		r, err = a.playOn(ctx, dsn)
		return err
	})
	return r, err
}

func (a *act) playOn(ctx context.Context, dsn string) (result, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return result{}, err
	}
	defer pool.Close()
	if err := service.SetUp(ctx, pool); err != nil {
		return result{}, err
	}
	if err := a.schedule(ctx, dsn, pool); err != nil {
		return result{}, err
	}
	return a.result(ctx, pool)
}

// schedule is the same with and without the fence.
func (a *act) schedule(ctx context.Context, dsn string, pool *pgxpool.Pool) error {
	a.story.begin()
	var workers []*process
	defer func() { awaitAll(workers) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills the workers, a stopped one too
	for i, name := range []string{"worker-a", "worker-b", "worker-c"} {
		cfg := WorkerConfig{name: name, endpoint: a.etcd.Endpoint(), dsn: dsn, prefix: "demo-" + a.name(), fenced: a.fenced}
		if i == 0 {
			cfg.pauseAt = pauseAt
		}
		w, err := startProcess(ctx, cfg)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	first, others := workers[0], workers[1:]

	// The others' events are read all along, so that no worker blocks on its output.
	sold := make(chan error, len(others))
	for _, w := range others {
		go func() { sold <- a.follow(w, eventSoldOut) }()
	}
	if err := a.follow(first, eventPausing); err != nil {
		return err
	}
	if err := first.awaitStopped(ctx); err != nil {
		return err
	}
	a.story.tell("%s is stopped there (SIGSTOP) for longer than its lease of %v", first.name, leaseTTL)
	for range others {
		if err := <-sold; err != nil {
			return err
		}
	}
	allSold, err := readSold(ctx, pool)
	if err != nil {
		return err
	}
	a.story.sales(allSold)
	a.story.tell("%s is resumed (SIGCONT)", first.name)
	if err := first.resume(); err != nil {
		return err
	}
	return a.follow(first, eventSoldOut)
}

// follow tells what w does until it has met the event that is waited for.
func (a *act) follow(w *process, until string) error {
	met := false
	for e := range w.events {
		a.story.event(w.name, e)
		if e.Event == until {
			met = true
			if until == eventPausing {
				return nil
			}
		}
	}
	<-w.done
	switch {
	case w.err != nil:
		return fmt.Errorf("%s ended: %w", w.name, w.err)
	case !met:
		return fmt.Errorf("%s ended and never said %q", w.name, until)
	}
	return nil
}

func awaitAll(workers []*process) {
	for _, w := range workers {
		for range w.events { // a worker blocked on its output would not end
		}
		<-w.done
	}
}

func (a *act) result(ctx context.Context, pool *pgxpool.Pool) (result, error) {
	var r result
	var err error
	if r.stock, err = service.ReadStock(ctx, pool); err != nil || !a.fenced {
		return r, err
	}
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		return r, err
	}
	r.rejections, err = store.Rejections(ctx, service.Resource(service.SKU), 100)
	return r, err
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	servers "github.com/fencekit/fencekit/internal/test/testenv/process"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// act is one run of the demo's schedule: the first worker is stopped between its read and its write, the others
// sell what is left, the first goes on.
type act struct {
	fenced   bool
	etcd     *etcdserver.Server
	postgres *pgserver.Server
	story    *story
}

type result struct {
	stock      service.Stock
	rejections []storage.Rejection
}

// pauseAt is how many units are available, at most, when the first worker stops.
const pauseAt = 60

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
	var workers []*Worker
	defer func() {
		for _, w := range workers {
			for range w.Events { // until it has ended
			}
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills the workers, a stopped one too
	for i, name := range []string{"worker-a", "worker-b", "worker-c"} {
		cfg := WorkerConfig{Name: name, Endpoint: a.etcd.Endpoint(), DSN: dsn, Prefix: "demo-" + a.name(), Fenced: a.fenced}
		if i == 0 {
			cfg.PauseAt = pauseAt
		}
		w, err := StartWorker(ctx, cfg)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	first, others := workers[0], workers[1:]

	// The others' events are read all along, so that no worker blocks on its output.
	sold := make(chan error, len(others))
	for _, w := range others {
		go func() { sold <- a.follow(w, EventSoldOut) }()
	}
	if err := a.follow(first, EventPausing); err != nil {
		return err
	}
	if err := awaitStopped(ctx, first); err != nil {
		return err
	}
	a.story.tell("%s is stopped there (SIGSTOP) for longer than its lease of %v", first.Name, leaseTTL)
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
	a.story.tell("%s is resumed (SIGCONT)", first.Name)
	if err := first.Resume(); err != nil {
		return err
	}
	return a.follow(first, EventSoldOut)
}

func (a *act) follow(w *Worker, until string) error {
	met := false
	for e := range w.Events {
		a.story.event(w.Name, e)
		if met = met || e.Event == until; met && until == EventPausing {
			return nil
		}
	}
	switch {
	case w.Err != nil:
		return fmt.Errorf("%s ended: %w", w.Name, w.Err)
	case !met:
		return fmt.Errorf("%s ended and never said %q", w.Name, until)
	}
	return nil
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

func awaitStopped(ctx context.Context, w *Worker) error {
	return servers.Poll(ctx, func(context.Context) error {
		stopped, err := w.Stopped()
		if err == nil && !stopped {
			err = fmt.Errorf("%s did not stop", w.Name)
		}
		return err
	})
}

// readSold goes by the database: what workers tell may still be on its way.
func readSold(ctx context.Context, pool *pgxpool.Pool) (map[string]int, error) {
	rows, err := pool.Query(ctx, `select regexp_replace(order_id, '-[0-9]+$', ''), sum(quantity) from reservation group by 1`)
	if err != nil {
		return nil, err
	}
	sold := map[string]int{}
	var worker string
	var quantity int
	_, err = pgx.ForEachRow(rows, []any{&worker, &quantity}, func() error {
		sold[worker] = quantity
		return nil
	})
	return sold, err
}

// story prints what happens. It may be told from several goroutines.
type story struct {
	out io.Writer

	mu     sync.Mutex
	start  time.Time
	tokens map[string]int64 // of each worker's latest lock
	sold   map[string]int   // by each worker, when it was last told
	paused string           // which worker is stopped, until another has taken over
}

func (s *story) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start, s.tokens, s.sold, s.paused = time.Now(), map[string]int64{}, map[string]int{}, ""
}

func (s *story) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(format, args...)
}

func (s *story) line(format string, args ...any) {
	fmt.Fprintf(s.out, "  %5.1f s  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

func (s *story) sales(sold map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellSales(sold)
}

func (s *story) tellSales(sold map[string]int) {
	var parts []string
	for _, worker := range slices.Sorted(maps.Keys(sold)) {
		if more := sold[worker] - s.sold[worker]; more > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", worker, more))
		}
	}
	if len(parts) > 0 {
		s.line("sold, lock passing from hand to hand: %s", strings.Join(parts, ", "))
	}
	s.sold = sold
}

func (s *story) event(worker string, e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Event {
	case EventHolds:
		s.tokens[worker] = e.Token
		if s.paused != "" && e.Token > s.tokens[s.paused] { // not one told late
			s.line("the lease of %s has run out: %s takes over with token %d", s.paused, worker, e.Token)
			s.paused = ""
		}
	case EventSold:
		if e.Quantity == pausedQuantity {
			s.line("%s has written order %s: %d units that were sold already", worker, e.Order, e.Quantity)
		}
	case EventPausing:
		s.tellSales(e.Sold)
		s.paused = worker
		s.line("%s (token %d) reads %d available, decides to give %d to order %s, has not written yet",
			worker, s.tokens[worker], e.Available, e.Quantity, e.Order)
	case EventResumed:
		s.line("%s writes order %s as it had decided", worker, e.Order)
	case EventRejected:
		s.line("REJECTED by Postgres: %s's token %d was superseded by %d (%s, claimed %.1f s ago)", worker, e.Token, e.Current, label(e.Holder), e.Age)
	case EventFailed:
		s.line("%s failed: %s", worker, e.Error)
	}
}

// label is a holder without its nonce.
func label(holder string) string {
	if i := strings.LastIndexByte(holder, '-'); i > 0 {
		return holder[:i]
	}
	return holder
}

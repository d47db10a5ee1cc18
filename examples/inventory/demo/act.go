package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	servers "github.com/fencekit/fencekit/internal/testenv/process"
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
	var workers []*process
	defer func() {
		for _, w := range workers {
			for range w.events { // until it has ended
			}
		}
	}()
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

func (a *act) follow(w *process, until string) error {
	met := false
	for e := range w.events {
		a.story.event(w.name, e)
		if met = met || e.Event == until; met && until == eventPausing {
			return nil
		}
	}
	switch {
	case w.err != nil:
		return fmt.Errorf("%s ended: %w", w.name, w.err)
	case !met:
		return fmt.Errorf("%s ended and never said %q", w.name, until)
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

// process is a worker in a process of its own, so that stopping it is real.
type process struct {
	name   string
	cmd    *exec.Cmd
	events chan event // closed when it has ended
	err    error      // why it ended, once events is closed
}

func startProcess(ctx context.Context, cfg WorkerConfig) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "worker",
		"-name", cfg.name, "-etcd", cfg.endpoint, "-postgres", cfg.dsn, "-prefix", cfg.prefix,
		"-fenced="+strconv.FormatBool(cfg.fenced), "-pause-at", strconv.Itoa(cfg.pauseAt))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", cfg.name, err)
	}
	p := &process{name: cfg.name, cmd: cmd, events: make(chan event)}
	go func() {
		defer close(p.events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = event{Event: eventFailed, Error: fmt.Sprintf("not an event: %q", lines.Text())}
			}
			select {
			case p.events <- e:
			case <-ctx.Done():
			}
		}
		p.err = cmd.Wait()
	}()
	return p, nil
}

func (p *process) awaitStopped(ctx context.Context) error {
	return servers.Poll(ctx, func(context.Context) error {
		stopped, err := pause.Stopped(p.cmd.Process.Pid)
		if err == nil && !stopped {
			err = fmt.Errorf("%s did not stop", p.name)
		}
		return err
	})
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

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

func (s *story) event(worker string, e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Event {
	case eventHolds:
		s.tokens[worker] = e.Token
		if s.paused != "" && e.Token > s.tokens[s.paused] { // not one told late
			s.line("the lease of %s has run out: %s takes over with token %d", s.paused, worker, e.Token)
			s.paused = ""
		}
	case eventSold:
		if e.Quantity == pausedQuantity {
			s.line("%s has written order %s: %d units that were sold already", worker, e.Order, e.Quantity)
		}
	case eventPausing:
		s.tellSales(e.Sold)
		s.paused = worker
		s.line("%s (token %d) reads %d available, decides to give %d to order %s, has not written yet",
			worker, s.tokens[worker], e.Available, e.Quantity, e.Order)
	case eventResumed:
		s.line("%s writes order %s as it had decided", worker, e.Order)
	case eventRejected:
		s.line("REJECTED by Postgres: %s's token %d was superseded by %d (%s, claimed %.1f s ago)", worker, e.Token, e.Current, label(e.Holder), e.Age)
	case eventFailed:
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

package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/storage/postgres"
)

// WorkerConfig is what a worker process is told on its command line.
type WorkerConfig struct {
	name     string
	endpoint string
	dsn      string
	prefix   string // of its keys in etcd
	fenced   bool
	// pauseAt: stop once between read and write, when so few units are available. 0: never.
	pauseAt int
}

const (
	leaseTTL       = 2 * time.Second       // short, so that the demo is
	pace           = 15 * time.Millisecond // how often a worker gets an order
	pausedQuantity = 12                    // what the order asks for that a worker stops at
	closeTimeout   = 5 * time.Second       // how long a worker takes to hand back what it holds
)

// RunWorker sells until nothing is left or ctx ends, then hands back what it holds. out gets its events.
func RunWorker(ctx context.Context, cfg WorkerConfig, out io.Writer) error {
	err := runWorker(ctx, cfg, out)
	if err != nil {
		tell(out, event{Event: eventFailed, Error: err.Error()})
	}
	return err
}

func runWorker(ctx context.Context, cfg WorkerConfig, out io.Writer) (err error) {
	client, err := clientv3.New(etcd.ClientConfig(cfg.endpoint))
	if err != nil {
		return fmt.Errorf("connecting to etcd: %w", err)
	}
	defer client.Close()
	pool, err := pgxpool.New(ctx, cfg.dsn)
	if err != nil {
		return fmt.Errorf("connecting to Postgres: %w", err)
	}
	defer pool.Close()
	locker, err := etcd.NewLocker(client, &etcd.Config{Prefix: cfg.prefix, TTL: leaseTTL, Label: cfg.name})
	if err != nil {
		return err
	}
	s, err := newSeller(cfg, locker, pool, func(g fence.Grant) {
		tell(out, event{Event: eventHolds, Token: int64(g.Token)})
	})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, s.close(closing), locker.Close(closing))
	}()
	return (&worker{cfg: cfg, seller: s, pool: pool, out: out}).sellAll(ctx)
}

func newSeller(cfg WorkerConfig, locker *etcd.Locker, pool *pgxpool.Pool, holds func(fence.Grant)) (seller, error) {
	if !cfg.fenced {
		return lockedSeller{locker, pool, holds}, nil
	}
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		return nil, err
	}
	g, err := guard.New(locker, store, &guard.Config{Observers: []*guard.Observer{{
		Claimed: func(_ context.Context, g fence.Grant, _ time.Duration) { holds(g) },
	}}})
	if err != nil {
		return nil, err
	}
	return fencedSeller{g}, nil
}

type worker struct {
	cfg    WorkerConfig
	seller seller
	pool   *pgxpool.Pool
	out    io.Writer
	paused bool
}

func (w *worker) sellAll(ctx context.Context) error {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pace):
		}
		order := service.Order{ID: fmt.Sprintf("%s-%d", w.cfg.name, n), SKU: service.SKU, Quantity: 1 + n%3}
		switch err := w.sell(ctx, order); {
		case errors.Is(err, service.ErrSoldOut) && order.Quantity == 1:
			tell(w.out, event{Event: eventSoldOut})
			return nil
		case errors.Is(err, service.ErrSoldOut), errors.Is(err, guard.ErrStaleToken):
			// A smaller order may still be served; a rejected one counts as lost.
		case err != nil:
			return err
		}
	}
}

func (w *worker) sell(ctx context.Context, order service.Order) error {
	decide := func(lots []service.Lot, quantity int) ([]service.Line, error) {
		if !w.pauseNow(lots) {
			return service.OldestFirst(lots, quantity)
		}
		order.Quantity = pausedQuantity
		lines, err := service.OldestFirst(lots, pausedQuantity)
		if err != nil {
			return nil, err
		}
		return lines, w.pause(ctx, order, service.Available(lots))
	}
	err := w.seller.sell(ctx, order, decide)
	var stale *guard.RejectedError
	switch {
	case errors.As(err, &stale):
		tell(w.out, event{Event: eventRejected, Order: order.ID, Quantity: order.Quantity,
			Token: int64(stale.Grant.Token), Current: int64(stale.Current.Token), Holder: stale.Current.Holder, Age: stale.Age.Seconds()})
	case err == nil:
		tell(w.out, event{Event: eventSold, Order: order.ID, Quantity: order.Quantity})
	}
	return err
}

func (w *worker) pauseNow(lots []service.Lot) bool {
	return !w.paused && w.cfg.pauseAt > 0 && service.Available(lots) <= w.cfg.pauseAt
}

// pause stops this process until it is told to go on. It has the lock, so it sees all that was sold.
func (w *worker) pause(ctx context.Context, order service.Order, available int) error {
	w.paused = true
	sold, err := readSold(ctx, w.pool)
	if err != nil {
		return err
	}
	tell(w.out, event{Event: eventPausing, Order: order.ID, Quantity: order.Quantity, Available: available, Sold: sold})
	err = pause.Self()
	tell(w.out, event{Event: eventResumed, Order: order.ID})
	return err
}

type seller interface {
	sell(ctx context.Context, order service.Order, decide service.Decision) error
	close(ctx context.Context) error
}

// fencedSeller is the way to do it: lock, claim, transaction and seal.
type fencedSeller struct{ guard *guard.Guard[pgx.Tx] }

func (s fencedSeller) sell(ctx context.Context, order service.Order, decide service.Decision) error {
	return guard.Do(ctx, s.guard, service.Resource(order.SKU), func(ctx context.Context, tx pgx.Tx) error {
		_, err := service.Allocate(ctx, tx, order, decide)
		return err
	}, guard.OpID(order.ID), guard.Name("allocate"))
}

func (s fencedSeller) close(ctx context.Context) error { return s.guard.Close(ctx) }

// lockedSeller is the control: the same lock and allocation, of which the database knows nothing. This is what
// most services do today.
type lockedSeller struct {
	locker fence.Locker
	pool   *pgxpool.Pool
	holds  func(fence.Grant) // told of each lock
}

func (s lockedSeller) sell(ctx context.Context, order service.Order, decide service.Decision) (err error) {
	lease, err := s.locker.Acquire(ctx, service.Resource(order.SKU))
	if err != nil {
		return err
	}
	defer func() {
		if released := lease.Release(ctx); !errors.Is(released, fence.ErrUnavailable) { // else it ends with its lease
			err = errors.Join(err, released)
		}
	}()
	s.holds(lease.Grant())
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := service.Allocate(ctx, tx, order, decide)
		return err
	})
}

func (s lockedSeller) close(context.Context) error { return nil }

// What a worker tells its parent, one JSON line each.
const (
	eventHolds    = "holds"    // the worker got the lock
	eventSold     = "sold"     // an order was allocated
	eventPausing  = "pausing"  // between its read and its write, about to stop
	eventResumed  = "resumed"  // going on after that
	eventRejected = "rejected" // the fence rejected a write
	eventSoldOut  = "sold out" // nothing left to sell; the worker ends
	eventFailed   = "failed"   // anything else; the worker ends
)

type event struct {
	Event     string  `json:"event"`
	Order     string  `json:"order,omitempty"`
	Quantity  int     `json:"quantity,omitempty"`
	Available int     `json:"available,omitempty"`
	Token     int64   `json:"token,omitempty"`
	Current   int64   `json:"current,omitempty"`
	Holder    string  `json:"holder,omitempty"`
	Age       float64 `json:"age,omitempty"` // of Current's claim, in seconds
	Error     string  `json:"error,omitempty"`

	Sold map[string]int `json:"sold,omitempty"` // by each worker so far, when pausing
}

// tell writes e. A parent that no longer listens is not the worker's concern.
func tell(w io.Writer, e event) {
	line, _ := json.Marshal(e)
	_, _ = w.Write(append(line, '\n'))
}

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
	"github.com/fencekit/fencekit/internal/test/pause"
	"github.com/fencekit/fencekit/storage/postgres"
)

// WorkerConfig is what a worker process is told on its command line.
type WorkerConfig struct {
	Name     string
	Endpoint string
	DSN      string
	Prefix   string // of its keys in etcd
	Fenced   bool
	// PauseAt: stop once between read and write, when so few units are available. 0: never.
	PauseAt int
}

const (
	leaseTTL       = 2 * time.Second       // short, so that the demo is
	pace           = 15 * time.Millisecond // how often a worker gets an order
	pausedQuantity = 12                    // what the order asks for that a worker stops at
	closeTimeout   = 5 * time.Second       // how long a worker takes to hand back what it holds
)

// runWorker sells until nothing is left or ctx ends, then hands back what it holds. out gets its events.
func runWorker(ctx context.Context, cfg WorkerConfig, out io.Writer) error {
	err := (&worker{cfg: cfg, out: out}).run(ctx)
	if err != nil {
		tell(out, Event{Event: EventFailed, Error: err.Error()})
	}
	return err
}

func (w *worker) run(ctx context.Context) (err error) {
	cfg := w.cfg
	client, err := clientv3.New(etcd.ClientConfig(cfg.Endpoint))
	if err != nil {
		return fmt.Errorf("connecting to etcd: %w", err)
	}
	defer client.Close()
	if w.pool, err = pgxpool.New(ctx, cfg.DSN); err != nil {
		return fmt.Errorf("connecting to Postgres: %w", err)
	}
	defer w.pool.Close()
	locker, err := etcd.New(client, &etcd.Config{Prefix: cfg.Prefix, TTL: leaseTTL, Label: cfg.Name})
	if err != nil {
		return err
	}
	closeGuard := func(context.Context) error { return nil }
	if cfg.Fenced {
		store, err := postgres.NewStore(w.pool, nil)
		if err != nil {
			return err
		}
		g, err := guard.New(locker, store, &guard.Config{Observers: []*guard.Observer{{
			Acquired: func(_ context.Context, g fence.Grant, _ time.Duration) { w.holds(g) },
		}}})
		if err != nil {
			return err
		}
		closeGuard = g.Close
		w.allocate = func(ctx context.Context, order service.Order, decide service.Decision) error {
			return guard.Do(ctx, g, service.Resource(order.SKU), func(ctx context.Context, tx pgx.Tx) error {
				_, err := service.Allocate(ctx, tx, order, decide)
				return err
			}, guard.OpID(order.ID), guard.OpName("allocate"))
		}
	} else {
		w.allocate = func(ctx context.Context, order service.Order, decide service.Decision) error {
			return w.allocateUnderTheLock(ctx, locker, order, decide)
		}
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, closeGuard(closing), locker.Close(closing))
	}()
	return w.sellAll(ctx)
}

// allocateUnderTheLock is the control: the same lock and allocation, of which the database knows nothing. This is
// what most services do today.
func (w *worker) allocateUnderTheLock(
	ctx context.Context, locker fence.Locker, order service.Order, decide service.Decision,
) (err error) {
	lease, err := locker.Acquire(ctx, service.Resource(order.SKU))
	if err != nil {
		return err
	}
	defer func() {
		if released := lease.Release(ctx); !errors.Is(released, fence.ErrUnavailable) { // else it ends with its lease
			err = errors.Join(err, released)
		}
	}()
	w.holds(lease.Grant())
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := service.Allocate(ctx, tx, order, decide)
		return err
	})
}

type worker struct {
	cfg      WorkerConfig
	allocate func(context.Context, service.Order, service.Decision) error
	pool     *pgxpool.Pool
	out      io.Writer
	paused   bool
}

func (w *worker) holds(g fence.Grant) { tell(w.out, Event{Event: EventHolds, Token: int64(g.Token)}) }

func (w *worker) sellAll(ctx context.Context) error {
	for n := 0; w.await(ctx); n++ {
		order := service.Order{ID: fmt.Sprintf("%s-%d", w.cfg.Name, n), SKU: service.SKU, Quantity: 1 + n%3}
		switch err := w.sell(ctx, order); {
		case errors.Is(err, service.ErrSoldOut) && order.Quantity == 1:
			tell(w.out, Event{Event: EventSoldOut})
			return nil
		case errors.Is(err, service.ErrSoldOut), errors.Is(err, guard.ErrStaleToken):
			// A smaller order may still be served; a rejected one counts as lost.
		case err != nil:
			return err
		}
	}
	return nil
}

// await waits for the next order, and reports whether there is one.
func (w *worker) await(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pace):
		return true
	}
}

func (w *worker) sell(ctx context.Context, order service.Order) error {
	decide := func(lots []service.Lot, quantity int) ([]service.Line, error) {
		if w.paused || service.Available(lots) > w.cfg.PauseAt {
			return service.OldestFirst(lots, quantity)
		}
		available := service.Available(lots)
		if available <= 0 {
			return nil, service.ErrSoldOut
		}
		order.Quantity = min(pausedQuantity, available)
		lines, err := service.OldestFirst(lots, order.Quantity)
		if err != nil {
			return nil, err
		}
		return lines, w.pause(ctx, order, available)
	}
	err := w.allocate(ctx, order, decide)
	var stale *guard.RejectedError
	switch {
	case errors.As(err, &stale):
		tell(w.out, Event{Event: EventRejected, Order: order.ID, Quantity: order.Quantity,
			Token: int64(stale.Grant.Token), Current: int64(stale.Current.Token), Holder: stale.Current.Holder, Age: stale.Age.Seconds()})
	case err == nil:
		tell(w.out, Event{Event: EventSold, Order: order.ID, Quantity: order.Quantity})
	}
	return err
}

// pause stops this process until it is told to go on. It has the lock, so it sees all that was sold.
func (w *worker) pause(ctx context.Context, order service.Order, available int) error {
	w.paused = true
	sold, err := readSold(ctx, w.pool)
	if err != nil {
		return err
	}
	tell(w.out, Event{Event: EventPausing, Order: order.ID, Quantity: order.Quantity, Available: available, Sold: sold})
	err = pause.Self()
	tell(w.out, Event{Event: EventResumed, Order: order.ID})
	return err
}

// What an Event says has happened.
const (
	EventHolds    = "holds"    // the worker got the lock
	EventSold     = "sold"     // an order was allocated
	EventPausing  = "pausing"  // between its read and its write, about to stop
	EventResumed  = "resumed"  // going on after that
	EventRejected = "rejected" // the fence rejected a write
	EventSoldOut  = "sold out" // nothing left to sell; the worker ends
	EventFailed   = "failed"   // anything else; the worker ends
)

// Event is what a worker tells its parent, one JSON line each.
type Event struct {
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
func tell(w io.Writer, e Event) {
	line, _ := json.Marshal(e)
	_, _ = w.Write(append(line, '\n'))
}

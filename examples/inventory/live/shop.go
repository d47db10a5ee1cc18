package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/examples/inventory/demo"
	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// shop has workers sell the product, in rounds: each begins with new stock, with the fence or without.
type shop struct {
	etcd     *etcdserver.Server
	postgres *pgserver.Server
	began    time.Time
	feed     *feed
	calls    chan func(*round) // made by the goroutine that plays the round
}

func newShop(etcd *etcdserver.Server, pg *pgserver.Server) *shop {
	began := time.Now()
	f := &feed{run: strconv.FormatInt(began.UnixNano(), 36), changed: make(chan struct{})}
	return &shop{etcd: etcd, postgres: pg, began: began, feed: f, calls: make(chan func(*round))}
}

// run plays rounds until ctx ends.
func (s *shop) run(ctx context.Context) error {
	client, err := s.etcd.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	fenced := true
	for n := 1; ctx.Err() == nil; n++ {
		r := &round{shop: s, prefix: fmt.Sprintf("live-%s-%d", s.feed.run, n)}
		r.Fenced, r.next, r.TTL = fenced, fenced, int(demo.LiveTTL.Seconds())
		err := demo.WithDatabase(ctx, s.postgres, "live", func(dsn string) error { return r.play(ctx, client, dsn) })
		if err != nil && ctx.Err() == nil {
			return err
		}
		fenced = r.next
	}
	return nil
}

// state is all of the page but the log.
type state struct {
	Fenced  bool    `json:"fenced"`
	TTL     int     `json:"ttl"`     // of a lease, in seconds
	Burst   bool    `json:"burst"`   // since a worker was last stopped
	Trouble string  `json:"trouble"` // why the rest may be out of date
	Lots    []lot   `json:"lots"`
	Lanes   []*lane `json:"lanes"`
}

type lot struct {
	Quantity int `json:"quantity"`
	Sold     int `json:"sold"`
}

// lane is what the page shows of one worker.
type lane struct {
	Name     string `json:"name"`
	Status   string `json:"status"` // selling, told (to stop), stopped, or ended
	Token    int64  `json:"token"`  // of its latest lock
	Lock     string `json:"lock"`   // held, waiting, or empty: as etcd has it
	Lease    int    `json:"lease"`  // seconds, if there is a lock
	Sold     int    `json:"sold"`
	Rejected int    `json:"rejected"`
	Note     string `json:"note"`
	NoteKind string `json:"noteKind"` // as entry.Kind, or failed

	worker *demo.Worker
	late   bool // it runs on after a pause, and hasn't written yet
}

// entry is a line of the log.
type entry struct {
	At     string `json:"at"`   // seconds
	Kind   string `json:"kind"` // claimed, fault (what the visitor did), rejected, or oversold
	Worker string `json:"worker"`
	Token  int64  `json:"token,omitempty"` // that was claimed, or came late
	Text   string `json:"text"`
}

// round is owned by the goroutine that plays it.
type round struct {
	*shop
	state
	ctx    context.Context
	end    context.CancelFunc // and begin the next
	next   bool               // has that the fence?
	dsn    string
	prefix string // of its keys in etcd: no lock of an earlier round is in the way
	pool   *pgxpool.Pool
	locks  *inspect.Inspector
	ended  sync.WaitGroup // the workers
}

const (
	lookEvery = 150 * time.Millisecond
	lookBound = 2 * time.Second
)

func (r *round) play(ctx context.Context, client *clientv3.Client, dsn string) (err error) {
	r.dsn = dsn
	if r.pool, err = pgxpool.New(ctx, dsn); err != nil {
		return err
	}
	defer r.pool.Close()
	if err := service.SetUp(ctx, r.pool); err != nil {
		return err
	}
	if r.locks, err = inspect.New(client, r.prefix, lookBound); err != nil {
		return err
	}
	defer r.ended.Wait()
	r.ctx, r.end = context.WithCancel(ctx)
	defer r.end() // kills the workers, a stopped one too
	for _, name := range []string{"worker-a", "worker-b", "worker-c"} {
		l := &lane{Name: name}
		r.Lanes = append(r.Lanes, l)
		if err := r.start(l); err != nil {
			return err
		}
	}
	if r.Fenced {
		r.tell("fault", nil, "New stock, the fence is on: Postgres accepts writes under the newest token only")
	} else {
		r.tell("fault", nil, "New stock, the fence is off: the same lock, but Postgres accepts any write")
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return nil
		case <-look.C:
			r.Trouble = ""
			if err := r.look(); err != nil {
				r.Trouble = err.Error()
			}
			r.feed.show(r.state)
		case call := <-r.calls:
			call(r)
		}
	}
}

func (r *round) start(l *lane) error {
	w, err := demo.StartWorker(r.ctx, demo.WorkerConfig{
		Name: l.Name, Endpoint: r.etcd.Endpoint(), DSN: r.dsn, Prefix: r.prefix, Fenced: r.Fenced, Live: true,
	})
	if err != nil {
		return err
	}
	l.worker, l.Status = w, "selling"
	call := func(f func(*round)) {
		select {
		case r.calls <- f:
		case <-r.ctx.Done():
		}
	}
	r.ended.Go(func() {
		for e := range w.Events {
			call(func(*round) { r.hear(l, e) })
		}
		call(func(*round) {
			r.tell("fault", l, "ended: %v", w.Err)
			l.Status = "ended"
		})
	})
	return nil
}

// look reads what is sold from the database, who has the lock from etcd, and who is stopped from the kernel.
func (r *round) look() error {
	for _, l := range r.Lanes {
		if l.Status == "told" {
			if is, err := l.worker.Stopped(); err == nil && is {
				l.Status = "stopped"
			}
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx, lookBound)
	defer cancel()
	rows, _ := r.pool.Query(ctx, `
		select l.quantity, coalesce(sum(r.quantity), 0)
		  from lot l left join reservation r on r.lot = l.id group by l.id order by l.received, l.id`)
	lots, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lot])
	if err != nil {
		return fmt.Errorf("reading the stock from Postgres: %w", err)
	}
	lock, err := r.locks.Lock(ctx, service.Resource(service.SKU))
	if err != nil {
		return err
	}
	r.Lots = lots
	for _, l := range r.Lanes {
		l.Lock, l.Lease = "", 0
		for i, a := range slices.Backward(lock.Queue) {
			if demo.Label(a.Grant.Holder) == l.Name {
				l.Lock, l.Lease = "waiting", int(a.LeaseLeft.Seconds())
				if i == 0 {
					l.Lock = "held"
				}
			}
		}
	}
	return nil
}

// act does what was asked of one worker, or of all.
func (r *round) act(do, worker string) error {
	if worker == "all" {
		switch do {
		case "burst":
			r.tell("fault", nil, "A burst of orders")
			for _, l := range r.Lanes {
				r.Burst = r.Burst || l.Status == "stopped" && l.Lock == ""
				if l.Status == "selling" {
					_ = l.worker.Tell(demo.CommandBurst) // it may have ended just now
				}
			}
			return nil
		case "fence-on", "fence-off": // with new stock
			r.next = do == "fence-on"
			r.end()
			return nil
		}
	}
	i := slices.IndexFunc(r.Lanes, func(l *lane) bool { return l.Name == worker })
	if i < 0 {
		return fmt.Errorf("there is no worker %q", worker)
	}
	l := r.Lanes[i]
	switch {
	case do == "pause" && l.Status == "selling":
		l.Status = "told"
		return l.worker.Tell(demo.CommandPause)
	case do == "resume" && l.Status == "stopped":
		l.Status, l.late = "selling", true
		r.tell("fault", l, "runs on (SIGCONT)")
		return l.worker.Resume()
	}
	return errors.New("not now: the page shows what has changed")
}

func (r *round) hear(l *lane, e demo.Event) {
	switch e.Event {
	case demo.EventHolds:
		if l.Token != e.Token {
			l.Token = e.Token
			r.tell("claimed", l, "has token %d", e.Token)
		}
	case demo.EventSold:
		l.Sold += e.Quantity
		switch overtaken := slices.ContainsFunc(r.Lanes, func(other *lane) bool { return other.Token > l.Token }); {
		case l.late && overtaken:
			r.tell("oversold", l, "wrote %d units on what it had read before: nothing stopped it", e.Quantity)
		case l.late:
			r.tell("fault", l, "wrote %d units in time: no other worker had the lock since", e.Quantity)
		case l.NoteKind == "failed":
			l.Note, l.NoteKind = "", ""
		}
		l.late = false
	case demo.EventPausing:
		r.Burst = false
		r.tell("fault", l, "is stopped (SIGSTOP) under token %d: has read %d available, decided to sell %d, not written yet", l.Token, e.Available, e.Quantity)
	case demo.EventRejected:
		l.Rejected++
		l.late = false
		r.tell("rejected", l, "is rejected by Postgres: token %d was superseded by %d (%s, claimed %.1f s ago)", e.Token, e.Current, demo.Label(e.Holder), e.Age)
	case demo.EventSoldOut:
		if l.Status == "told" {
			l.Status = "selling"
		}
	case demo.EventFailed:
		l.late = false
		l.NoteKind, l.Note = "failed", "failed, and tries again: "+e.Error
	}
}

// tell adds to the log what happened to a worker, or to all.
func (r *round) tell(kind string, l *lane, format string, args ...any) {
	e := entry{At: fmt.Sprintf("%.1f", time.Since(r.began).Seconds()), Kind: kind, Text: fmt.Sprintf(format, args...)}
	if l != nil {
		e.Worker = l.Name
		if kind != "claimed" {
			l.NoteKind, l.Note = kind, e.Text
		}
		if kind != "fault" {
			e.Token = l.Token
		}
	}
	r.feed.tell(e)
}

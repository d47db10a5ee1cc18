package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/examples/inventory/demo"
	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// shop has workers sell the product, in rounds: each begins with new stock, with the fence or without.
type shop struct {
	etcd     *etcdserver.Server
	postgres *pgserver.Server
	feed     *feed
	asked    chan request
	rounds   int
}

// request is what a browser asks for, and waits for.
type request struct {
	do
	done chan error
}

func newShop(etcd *etcdserver.Server, pg *pgserver.Server) *shop {
	return &shop{etcd: etcd, postgres: pg, feed: newFeed(), asked: make(chan request)}
}

func (s *shop) ask(ctx context.Context, d do) error {
	r := request{d, make(chan error, 1)}
	select {
	case s.asked <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run plays rounds until ctx ends.
func (s *shop) run(ctx context.Context) error {
	client, err := s.etcd.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	for fenced := true; ctx.Err() == nil; {
		s.rounds++
		err := demo.WithDatabase(ctx, s.postgres, "live", func(dsn string) (err error) {
			fenced, err = s.play(ctx, client, dsn, fenced)
			return err
		})
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// round is owned by the goroutine that plays it.
type round struct {
	*shop
	state
	ctx     context.Context
	dsn     string
	prefix  string // of its keys in etcd: no lock of an earlier round is in the way
	began   time.Time
	pool    *pgxpool.Pool
	locks   *inspect.Inspector
	links   map[*lane]*netfault.Link
	heard   chan heard
	soldOut bool // has been told
}

// heard is an event of a worker's, or its end.
type heard struct {
	lane   *lane
	worker *demo.Worker
	event  demo.Event
	ended  bool
}

const lookEvery = 150 * time.Millisecond

// play plays a round until the next is asked for, and returns whether that one has the fence.
func (s *shop) play(ctx context.Context, client *clientv3.Client, dsn string, fenced bool) (next bool, err error) {
	r := &round{
		shop: s, dsn: dsn, prefix: fmt.Sprintf("live-%s-%d", s.feed.run, s.rounds), began: time.Now(),
		state: state{Run: s.feed.run, Fenced: fenced, TTL: int(demo.LiveTTL.Seconds())},
		heard: make(chan heard), links: map[*lane]*netfault.Link{},
	}
	if r.pool, err = pgxpool.New(ctx, dsn); err != nil {
		return fenced, err
	}
	defer r.pool.Close()
	if err := service.SetUp(ctx, r.pool); err != nil {
		return fenced, err
	}
	if r.locks, err = inspect.New(client, r.prefix, 10*time.Second); err != nil {
		return fenced, err
	}
	defer r.end()
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithCancel(ctx)
	defer cancel() // kills the workers, a stopped one too
	for _, name := range []string{"worker-a", "worker-b", "worker-c"} {
		l := &lane{Name: name, Status: killed}
		if r.links[l], err = netfault.New(strings.TrimPrefix(s.etcd.Endpoint(), "http://")); err != nil {
			return fenced, err
		}
		r.Lanes = append(r.Lanes, l)
		if err := r.start(l); err != nil {
			return fenced, err
		}
	}
	if fenced {
		r.tell(plain, "", "New stock. The fence is on: a write commits only under the newest token.")
	} else {
		r.tell(plain, "", "New stock. The fence is off: the same lock, and the database knows nothing of it.")
	}
	return r.loop()
}

// end waits until the workers, which have been killed, have ended.
func (r *round) end() {
	for slices.ContainsFunc(r.Lanes, func(l *lane) bool { return l.worker != nil }) {
		if h := <-r.heard; h.ended {
			h.lane.worker = nil
		}
	}
	for _, link := range r.links {
		_ = link.Close()
	}
}

func (r *round) loop() (next bool, err error) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		if err := r.look(); err != nil {
			return r.Fenced, err
		}
		r.feed.show(r.marshal())
		select {
		case <-r.ctx.Done():
			return r.Fenced, nil
		case <-look.C:
		case h := <-r.heard:
			r.hear(h)
		case q := <-r.asked:
			switch q.Do {
			case "fence-on", "fence-off", "restart":
				q.done <- nil
				return q.Do == "fence-on" || q.Do == "restart" && r.Fenced, nil
			}
			q.done <- r.act(q.do)
		}
	}
}

func (r *round) start(l *lane) error {
	w, err := demo.StartWorker(r.ctx, demo.WorkerConfig{
		Name: l.Name, Endpoint: "http://" + r.links[l].Addr(), DSN: r.dsn, Prefix: r.prefix, Fenced: r.Fenced, Live: true,
	})
	if err != nil {
		return err
	}
	l.worker, l.Status, l.late = w, selling, false
	l.note(plain, "")
	go func() {
		for e := range w.Events {
			r.heard <- heard{lane: l, worker: w, event: e}
		}
		r.heard <- heard{lane: l, worker: w, ended: true}
	}()
	return nil
}

// look reads what is sold from the database, who has the lock from etcd, and who is stopped from the kernel.
func (r *round) look() error {
	rows, err := r.pool.Query(r.ctx, `
		select l.quantity, coalesce(sum(r.quantity), 0)
		  from lot l left join reservation r on r.lot = l.id group by l.id order by l.received, l.id`)
	if err != nil {
		return err
	}
	if r.Lots, err = pgx.CollectRows(rows, pgx.RowToStructByPos[lot]); err != nil {
		return err
	}
	before := r.Oversold
	r.OnHand, r.state.Sold, r.Oversold = 0, 0, 0
	for _, l := range r.Lots {
		r.OnHand, r.state.Sold, r.Oversold = r.OnHand+l.Quantity, r.state.Sold+l.Sold, r.Oversold+max(0, l.Sold-l.Quantity)
	}
	if r.Oversold > before {
		r.tell(oversold, "", "Oversold: %d units were sold twice.", r.Oversold)
	}
	lock, err := r.locks.Lock(r.ctx, service.Resource(service.SKU))
	if err != nil {
		return err
	}
	for _, l := range r.Lanes {
		l.Lock, l.Lease = "", 0
		for i, a := range lock.Queue {
			if demo.Label(a.Grant.Holder) == l.Name {
				l.Lock, l.Lease = "waiting", int(a.LeaseLeft.Seconds())
				if i == 0 {
					l.Lock = "held"
					break
				}
			}
		}
		if l.Status == stopping && l.NoteKind == fault {
			if is, err := l.worker.Stopped(); err == nil && is {
				l.Status = stopped
			}
		}
	}
	return nil
}

// act does what was asked of one worker, or of all.
func (r *round) act(d do) error {
	if d.Do == "burst" {
		r.tell(fault, "", "A burst of orders.")
		for _, l := range r.Lanes {
			if l.Status == selling {
				_ = l.worker.Tell(demo.CommandBurst) // it may have ended just now
			}
		}
		return nil
	}
	i := slices.IndexFunc(r.Lanes, func(l *lane) bool { return l.Name == d.Worker })
	if i < 0 {
		return fmt.Errorf("there is no worker %q", d.Worker)
	}
	l := r.Lanes[i]
	switch {
	case d.Do == "pause" && l.Status == selling:
		l.Status = stopping
		l.note(plain, "Stops with its next order, between its read and its write.")
		return l.worker.Tell(demo.CommandPause)
	case d.Do == "resume" && l.Status == stopped:
		l.Status, l.late = selling, true
		r.tell(fault, l.Name, "runs on (SIGCONT)")
		return l.worker.Resume()
	case d.Do == "kill" && l.worker != nil && l.Status != ending:
		l.Status, l.late = ending, false
		l.note(plain, "Its lock is free when its lease has run out.")
		r.tell(fault, l.Name, "is killed (SIGKILL)")
		return l.worker.Kill()
	case d.Do == "start" && l.worker == nil:
		r.tell(fault, l.Name, "is started")
		return r.start(l)
	case d.Do == "cut" && !l.Cut:
		l.Cut, l.mend = true, r.links[l].Cut(netfault.ToServer, netfault.ToClient)
		r.tell(fault, l.Name, "is cut off from etcd")
		return nil
	case d.Do == "mend" && l.Cut:
		l.mend()
		l.Cut = false
		r.tell(fault, l.Name, "reaches etcd again")
		return nil
	}
	return errors.New("not now: the page shows what has changed")
}

func (r *round) hear(h heard) {
	l, e := h.lane, h.event
	switch {
	case h.ended:
		if l.Status != ending {
			r.tell(fault, l.Name, "ended: %v", h.worker.Err)
		}
		l.worker, l.Status = nil, killed
	case e.Event == demo.EventHolds:
		if l.Token != e.Token {
			l.Token = e.Token
			r.tell(claimed, l.Name, r.verb()+" token %d", e.Token)
		}
	case e.Event == demo.EventSold:
		l.Sold += e.Quantity
		if l.late && r.overtaken(l) {
			r.tell(oversold, l.Name, "wrote %d units on what it had read before: nothing stopped it", e.Quantity)
			l.note(oversold, fmt.Sprintf("Wrote %d units on what it had read before. Nothing stopped it.", e.Quantity))
		} else if l.late {
			r.tell(plain, l.Name, "wrote %d units in time: no other worker had claimed", e.Quantity)
			l.note(plain, "")
		}
		l.late = false
	case e.Event == demo.EventPausing:
		r.tell(fault, l.Name, "is stopped (SIGSTOP) under token %d: has read %d available, decided to sell %d, not written yet", l.Token, e.Available, e.Quantity)
		l.note(fault, fmt.Sprintf("Has read: %d available. Has decided: sell %d. Not written yet.", e.Available, e.Quantity))
	case e.Event == demo.EventRejected:
		l.Rejected++
		l.late = false
		text := fmt.Sprintf("token %d was superseded by %d (%s, claimed %.1f s ago)", e.Token, e.Current, demo.Label(e.Holder), e.Age)
		r.tell(rejected, l.Name, "is rejected by Postgres: %s", text)
		l.note(rejected, fmt.Sprintf("Late write of %d units rejected: %s.", e.Quantity, text))
	case e.Event == demo.EventSoldOut:
		if l.Status == stopping {
			l.Status = selling
			l.note(plain, "")
		}
		if !r.soldOut {
			r.soldOut = true
			r.tell(plain, "", "Sold out. Start over for new stock.")
		}
	case e.Event == demo.EventFailed:
		l.late = false
		if !l.Cut { // or it says again and again that etcd doesn't answer
			r.tell(plain, l.Name, "failed: %s", e.Error)
		}
	}
}

func (r *round) verb() string {
	if r.Fenced {
		return "claims with"
	}
	return "gets the lock with"
}

// overtaken reports whether another worker has got the lock since l did.
func (r *round) overtaken(l *lane) bool {
	return slices.ContainsFunc(r.Lanes, func(other *lane) bool { return other.Token > l.Token })
}

func (l *lane) note(k kind, text string) { l.NoteKind, l.Note = k, text }

func (r *round) tell(k kind, worker, format string, args ...any) {
	e := entry{At: fmt.Sprintf("%.1f", time.Since(r.began).Seconds()), Kind: k, Worker: worker, Text: fmt.Sprintf(format, args...)}
	if i := slices.IndexFunc(r.Lanes, func(l *lane) bool { return l.Name == worker }); i >= 0 && k != fault && k != plain {
		e.Token = r.Lanes[i].Token
	}
	r.feed.tell(e)
}

package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

// Locker is a fence.Locker on PostgreSQL. It is safe for concurrent use.
type Locker struct {
	cfg      Config
	database database
	link     link
	sessions session.Manager[int64]
	tasks    *session.Tasks
	news     chan struct{} // holds a signal that there is something to look at

	begin    sync.Once // what runs in the background
	closed   chan struct{}
	finished chan struct{}

	mu     sync.Mutex
	leases map[string]*lease // those that are not over, by holder
	due    map[string]bool   // holders to look at
}

var _ fence.Locker = (*Locker)(nil)

// New returns a Locker on the database of pool, which has to stay open until Close. It makes no request. A nil cfg
// means the defaults; cfg is copied. A nil pool and a bad cfg are fence.ErrInvalid.
func New(pool *pgxpool.Pool, cfg *Config) (*Locker, error) {
	c := cfg.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, fmt.Errorf("%w: pglock.New needs a pool", fence.ErrInvalid)
	}
	l := &Locker{
		cfg: c, database: database{pool, pgx.Identifier{c.Schema}.Sanitize(), c.requestTimeout}, tasks: session.NewTasks(), news: make(chan struct{}, 1),
		closed: make(chan struct{}), finished: make(chan struct{}), leases: map[string]*lease{}, due: map[string]bool{},
	}
	l.link.database, l.link.woken = &l.database, l.woken
	l.sessions = session.Manager[int64]{
		Service: service{l}, TTL: c.TTL, RequestTimeout: c.requestTimeout, OnEnd: l.sessionEnded,
		Tasks: l.tasks, Logger: c.Logger, ErrClosed: errClosed,
	}
	return l, nil
}

// Check reports whether the database would grant a lock now, for start-up and readiness probes: that it answers, is
// no standby, has the schema, and gives the role its rights. It changes nothing. The errors are those of Acquire.
func (l *Locker) Check(ctx context.Context) error {
	if l.isClosed() {
		return errClosed
	}
	probe := l.database.sql("lock_acquire", 0, "{}", "{}", "", false) + "; " + l.database.sql("lock_renew", 0, 1)
	_, err := l.database.onPool(ctx, probe)
	return failed(ctx, "check", err)
}

var errClosed = fmt.Errorf("%w: locker is closed", fence.ErrClosed)

func (l *Locker) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Close ends all leases with fence.LossClosed, deletes the session, which frees what they have, and stops
// everything in the background. Later and waiting calls return fence.ErrClosed.
//
// If the database can't be reached, Close returns a *fence.UnavailableError when ctx ends, or when the session must
// have expired; everything is closed nevertheless. If ctx has ended already, Close takes up to the time of one
// request. A second call waits for the first, and returns nil.
func (l *Locker) Close(ctx context.Context) error {
	if ctx.Err() != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.requestTimeout)
		defer cancel()
		ctx = last
	}
	l.mu.Lock()
	again := l.isClosed()
	if !again {
		close(l.closed)
	}
	l.mu.Unlock()
	if again {
		select {
		case <-l.finished:
			return nil
		case <-ctx.Done():
			return session.Ended(ctx, "pglock: close")
		}
	}
	defer close(l.finished)
	defer l.tasks.Stop()
	if err := l.sessions.Close(ctx); err != nil {
		return unavailable("close", err)
	}
	return nil
}

// service is the session.Service of a Locker.
type service struct{ *Locker }

func (l service) Grant(ctx context.Context, ttl time.Duration) (id int64, granted time.Duration, err error) {
	l.begin.Do(func() {
		l.tasks.Start(l.link.run)
		l.tasks.Start(l.look)
	})
	id = rand.Int64N(1<<62) + 1
	open := l.database.sql("lock_open", id, encode(l.cfg.Label), ttl.Milliseconds())
	_, err = l.link.call(ctx, open, fmt.Sprintf("fencekit_%x", id))
	return id, ttl, err
}

func (l service) KeepAlive(ctx context.Context, id int64) (time.Duration, error) {
	rows, err := l.link.call(ctx, l.database.sql("lock_renew", id, l.cfg.TTL.Milliseconds()), "")
	switch {
	case err != nil:
		return 0, err
	case len(rows) == 1 && rows[0][0] == "1":
		return l.cfg.TTL, nil
	case len(rows) == 1 && rows[0][0] == "-1":
		l.sessions.Current().End(fence.LossWentBack)
	}
	return 0, nil
}

func (l service) Revoke(ctx context.Context, id int64) (forGood bool, err error) {
	_, err = l.link.call(ctx, l.database.sql("lock_end", id), "")
	return false, err
}

func (l *Locker) sessionEnded(s *session.Session[int64], reason fence.LossReason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.leases {
		if p.Session == s {
			p.finish(p.loss(reason))
		}
	}
}

func (l *Locker) woken(holder string) {
	l.mu.Lock()
	switch {
	case holder == "":
		l.allDue()
	case l.leases[holder] != nil:
		l.leases[holder].hint = true
		l.due[holder] = true
	}
	l.mu.Unlock()
	l.signal()
}

func (l *Locker) allDue() {
	for holder, p := range l.leases {
		if p.waits || p.Watched() {
			l.due[holder] = true
		}
	}
}

func (l *Locker) signal() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// look finds out what has become of holders when a notification says so, and from time to time in case one was
// lost.
func (l *Locker) look(ctx context.Context) {
	timer := time.NewTimer(l.cfg.poll)
	for {
		select {
		case <-l.news:
		case <-timer.C:
			l.mu.Lock()
			l.allDue()
			l.mu.Unlock()
			timer.Reset(l.interval())
		case <-ctx.Done():
			return
		}
		l.lookOnce(ctx)
	}
}

func (l *Locker) interval() time.Duration {
	if l.link.listening() {
		return l.cfg.poll
	}
	return min(pollOnlyInterval, l.cfg.poll)
}

func (l *Locker) lookOnce(ctx context.Context) {
	s := l.sessions.Current()
	l.mu.Lock()
	var waiting []*lease
	contended := false
	for holder := range l.due {
		p := l.leases[holder]
		if p != nil && p.calls > 0 {
			continue // its answer is due first
		}
		delete(l.due, holder)
		switch {
		case p == nil:
		case p.waits:
			waiting = append(waiting, p)
		case p.Watched():
			contended = true
		}
	}
	l.mu.Unlock()
	if len(waiting) == 0 && !contended {
		return
	}
	rows, err := l.link.call(ctx, l.database.sql("lock_look", s.ID, encodeAll(waiting, (*lease).resource), encodeAll(waiting, (*lease).holder), contended), "")
	if err != nil {
		return // the next look finds out
	}
	expired := false
	for _, row := range rows {
		place, _ := strconv.Atoi(row[0])
		switch state := row[1]; {
		case place == 0:
			l.contend(decode(row[5]))
		case state == "o":
			waiting[place-1].granted(row[2:])
		case state == "e":
			expired = true
		default: // the owner is gone, or the place: acquiring again puts that right
			l.acquireAgain(waiting[place-1])
		}
	}
	if expired {
		l.tasks.Start(func(ctx context.Context) { _ = l.endExpired(ctx) })
	}
}

func (l *Locker) acquireAgain(p *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.waits && p.calls == 0 {
		p.calls++
		l.tasks.Start(func(ctx context.Context) { l.acquireAll(ctx, true, p) })
	}
}

// endExpired ends the sessions that have expired, and wakes who waits for them.
func (l *Locker) endExpired(ctx context.Context) error {
	_, err := l.database.onPool(ctx, l.database.sql("lock_end", nil))
	return err
}

func (l *Locker) contend(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.leases[holder]; p != nil {
		p.hint = true
		p.Contend()
	}
}

// failed is the error of a request that err has ended. If a deadline of the caller's did, the database did not
// answer in time.
func failed(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil:
		return unavailable(op, err)
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return session.Ended(ctx, "pglock: "+op)
	}
	return &fence.UnavailableError{Op: op, Reason: fence.Unreachable, Err: fmt.Errorf("pglock: no answer from the database yet: %w", session.Ended(ctx, "pglock: "+op))}
}

package pglock

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	closing  *session.Closing
	database database
	link     link
	sessions session.Manager[int64]
	tasks    *session.Tasks
	news     chan struct{} // holds a signal that there is something to look at
	begin    sync.Once     // what runs in the background

	mu       sync.Mutex
	leases   map[string]*lease // those that are not over, by holder
	due      map[*lease]bool   // to be looked at
	nextLook time.Time         // at all of them
	lastCall int64             // of lock_acquire
	calls    map[int64]bool    // that are unanswered
	renewals map[int64]int64   // of the latest session, as the last answer counted them
}

var (
	_ fence.Locker      = (*Locker)(nil)
	_ fence.EpochKeeper = (*Locker)(nil)
	_ fence.Elector     = (*Locker)(nil)
)

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
		cfg: c, closing: session.NewClosing(), database: database{pool, pgx.Identifier{c.Schema}.Sanitize(), c.requestTimeout},
		tasks: session.NewTasks(), news: make(chan struct{}, 1), leases: map[string]*lease{}, due: map[*lease]bool{}, calls: map[int64]bool{},
	}
	l.link.database, l.link.woken, l.link.requests = &l.database, l.woken, make(chan *request)
	l.sessions = session.Manager[int64]{
		Service: service{l}, TTL: c.TTL, RequestTimeout: c.requestTimeout, OnEnd: l.sessionEnded,
		Tasks: l.tasks, Logger: c.Logger, ErrClosed: errClosed,
	}
	return l, nil
}

// TTL is Config.TTL.
func (l *Locker) TTL() time.Duration { return l.cfg.TTL }

// Check reports whether the database would grant a lock now, for start-up and readiness probes: that it answers, is
// no standby, has the schema, and gives the role its rights. It changes nothing. The errors are those of Acquire.
func (l *Locker) Check(ctx context.Context) error {
	if l.closing.IsClosed() {
		return errClosed
	}
	_, err := l.database.call(ctx, "lock_acquire", 0, 0, "{}", "{}", "", false)
	if err == nil {
		_, err = l.database.call(ctx, "lock_renew", 0, 1, 0)
	}
	return failed(ctx, "check", err)
}

// Beside returns what names a new holder if the locks are in this schema of this pool's database; else nil. Package
// storage/postgres calls it: see storage.Claimer.
func (l *Locker) Beside(pool *pgxpool.Pool, schema string) (holder func() string) {
	if pool != l.database.pool || schema != l.cfg.Schema {
		return nil
	}
	return func() string { return session.NewHolder(l.cfg.Label) }
}

// Epoch implements fence.EpochKeeper. It is 0: the epoch is the database's.
func (l *Locker) Epoch() int64 { return 0 }

// EpochRemedy implements fence.EpochKeeper. Locks in the fences' database never fall behind.
func (l *Locker) EpochRemedy(_, _ int64) string {
	return "locks in Postgres take epoch and tokens from the fences: another lock service is used beside them, or they are in another database: use one"
}

var errClosed = fmt.Errorf("%w: locker is closed", fence.ErrClosed)

// Close ends all leases with fence.LossClosed, deletes the session, which frees what they have, and stops
// everything in the background. Later and waiting calls return fence.ErrClosed.
//
// If the database can't be reached, Close returns a *fence.UnavailableError when ctx ends, or when the session must
// have expired; everything is closed nevertheless. If ctx has ended already, Close takes up to the time of one
// request. A second call waits for the first, and returns nil.
func (l *Locker) Close(ctx context.Context) error {
	return l.closing.Close(ctx, l.cfg.requestTimeout, "pglock: close", func(ctx context.Context) error {
		defer l.tasks.Stop()
		if err := l.sessions.Close(ctx); err != nil {
			return unavailable("close", err)
		}
		return nil
	})
}

// service is the session.Service of a Locker.
type service struct{ *Locker }

func (l service) Grant(ctx context.Context, ttl time.Duration) (id int64, granted time.Duration, err error) {
	l.begin.Do(func() {
		l.tasks.Start(l.link.run)
		l.tasks.Start(l.look)
	})
	for n := range attempts {
		if n > 0 {
			session.Pause(ctx, n)
		}
		id = rand.Int64N(1<<62) + 1
		l.mu.Lock()
		l.renewals = map[int64]int64{id: 0}
		l.mu.Unlock()
		_, err = l.link.call(ctx, fmt.Sprintf("fencekit_%x", id), "lock_open", id, encode(l.cfg.Label), ttl.Milliseconds())
		if !inDoubt(err) || ctx.Err() != nil { // a session that was opened all the same expires
			break
		}
	}
	return id, ttl, err
}

func (l service) KeepAlive(ctx context.Context, id int64) (time.Duration, error) {
	l.mu.Lock()
	seen := l.renewals[id]
	l.mu.Unlock()
	rows, err := l.link.call(ctx, "", "lock_renew", id, l.cfg.TTL.Milliseconds(), seen)
	if err != nil {
		return 0, err
	}
	switch seen = number(rows[0][0]); seen {
	case 0:
		return 0, nil
	case -1:
		return 0, session.OverError(fence.LossWentBack)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, latest := l.renewals[id]; latest {
		l.renewals[id] = seen
	}
	return l.cfg.TTL, nil
}

func (l service) Revoke(ctx context.Context, id int64) (forGood bool, err error) {
	_, err = l.link.call(ctx, "", "lock_end", id)
	return false, err
}

func (l *Locker) sessionEnded(s *session.Session[int64], reason fence.LossReason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.leases {
		if p.Session == s {
			p.Lose(reason)
		}
	}
}

func (l *Locker) woken(holder string) {
	l.mu.Lock()
	if holder == "" {
		l.allDue()
	} else if p := l.leases[holder]; p != nil {
		p.hint, l.due[p] = true, true
	}
	l.mu.Unlock()
	l.signal()
}

// maxWatched is at how many owned resources a look from time to time looks, chosen by chance.
const maxWatched = 1000

func (l *Locker) allDue() {
	for _, p := range l.leases {
		if p.waits || p.Watched() && len(l.due) < maxWatched {
			l.due[p] = true
		}
	}
}

func (l *Locker) signal() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// look finds out what has become of holders when a notification says so, when the session expires that is in the way,
// and from time to time in case a notification was lost.
func (l *Locker) look(ctx context.Context) {
	for timer := time.NewTimer(0); ; {
		interval := l.cfg.poll
		if l.link.deaf.Load() {
			interval = min(pollOnlyInterval, interval)
		}
		l.mu.Lock()
		timer.Reset(l.lookAt(interval))
		l.mu.Unlock()
		select {
		case <-l.news:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		if !time.Now().Before(l.nextLook) {
			l.nextLook = time.Time{}
			l.allDue()
		}
		l.mu.Unlock()
		l.lookOnce(ctx)
	}
}

// lookAt makes the next look at all no later than in that time, which it returns. Callers hold mu.
func (l *Locker) lookAt(in time.Duration) time.Duration {
	if at := time.Now().Add(in); l.nextLook.IsZero() || at.Before(l.nextLook) {
		l.nextLook = at
	}
	return time.Until(l.nextLook)
}

func (l *Locker) lookOnce(ctx context.Context) {
	l.mu.Lock()
	var waiting, watched []*lease
	for p := range l.due {
		if p.asking {
			continue // its answer is due first
		}
		delete(l.due, p)
		if p.waits {
			waiting = append(waiting, p)
		} else if p.Watched() {
			watched = append(watched, p)
		}
	}
	l.mu.Unlock()
	ps := append(waiting, watched...)
	if len(ps) == 0 {
		return
	}
	rows, err := l.link.call(ctx, "", "lock_look", encodeAll(ps, (*lease).resource), encodeAll(ps, (*lease).holder), len(waiting))
	if err != nil {
		return // the next look finds out
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	expired := false
	for _, row := range rows {
		p, has := ps[number(row[0])-1], state(row[1:])
		if p.waits {
			expired = p.learn(has) || expired
		}
		if p.owns && has.contended() {
			p.hint = true
			p.Contend()
		}
	}
	if expired {
		l.tasks.Start(func(ctx context.Context) { _ = l.endExpired(ctx) })
	}
}

// endExpired ends the sessions that have expired, and wakes who waits for them.
func (l *Locker) endExpired(ctx context.Context) error {
	_, err := l.database.call(ctx, "lock_end", nil)
	return err
}

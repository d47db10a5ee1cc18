package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Queue says which rows of a table are jobs, and how they are worked on. Row is what a row is read into: a struct, by
// its fields' names or db tags, or what a single column is scanned into.
type Queue[Row any] struct {
	// Name is that of the queue. The resource of a row is Name, a slash and its Key, as in invoice/17: whoever else
	// writes the row guards it under that name. The schema's owner has said so, by
	//	insert into fence.queue (name) values ('invoice')
	// which Work does too, if its role may. From then on fence and history of such resources are deleted 10 minutes
	// (fence.queue.keep) after their last claim; grants from before stay rejected.
	Name string
	// Next is a query for the rows that may be worked on, in the order in which they are to be taken. It has no LIMIT,
	// and ends in FOR UPDATE SKIP LOCKED (of the jobs' table, in a join). A condition fence.free('invoice/' || id)
	// passes over rows that are being worked on, at less cost than Work does. It is a prefix of what is read: few rows
	// more than are taken.
	Next string
	// Args are the arguments of Next, by default none.
	Args []any
	// Key returns what tells the row from all others, such as its primary key as text: at least 1 byte. A row whose
	// resource then has no valid name is passed over, and the Logger told once.
	Key func(row Row) string
	// Workers is how many functions run at a time; default 10. They share the connections of the Guard's pool, of which
	// each has one in a transaction alone.
	Workers int
	// MaxRun bounds a function: then its context ends, and others may take the row. Default 15 minutes. A process that
	// has died or stands still keeps its rows until its lease is over, however short it is.
	MaxRun time.Duration
	// Poll is how long Work waits once there were fewer rows than workers; default 1 s.
	Poll time.Duration
	// Pause is for how long a row isn't taken again, by anyone, after its function failed here; default 5 s.
	Pause time.Duration
	// Taken, if it isn't nil, runs in the transaction that takes rows, for instance to count attempts. It is not
	// guarded: nothing but those rows is known to be nobody else's. If it fails, none is taken, and it is tried again.
	Taken func(ctx context.Context, tx pgx.Tx, rows []Row) error
	// Scan reads a row; default pgx.RowToStructByName for a struct, else pgx.RowTo.
	Scan pgx.RowToFunc[Row]
	// Logger gets errors of functions, and of the database; default slog.Default().
	Logger *slog.Logger
}

// Job is a row that this process has taken. Its Runner runs transactions under the row's grant: each commits only if no
// other worker has taken the row since.
type Job[Row any] struct {
	fencekit.Runner
	Row      Row
	Resource string
}

func (q *Queue[Row]) fill() error {
	q.Workers, q.MaxRun = cmp.Or(q.Workers, 10), cmp.Or(q.MaxRun, 15*time.Minute)
	q.Poll, q.Pause = cmp.Or(q.Poll, time.Second), cmp.Or(q.Pause, 5*time.Second)
	q.Logger = callback.Logger(cmp.Or(q.Logger, slog.Default()))
	if q.Scan == nil {
		q.Scan = pgx.RowTo[Row]
		if reflect.TypeFor[Row]().Kind() == reflect.Struct && reflect.TypeFor[Row]() != reflect.TypeFor[time.Time]() {
			q.Scan = pgx.RowToStructByName[Row]
		}
	}
	if err := fence.ValidateResource(q.Name + "/x"); err != nil || q.Name == "" {
		return fmt.Errorf("%w: jobs: Queue.Name is %q, which can't begin the name of a resource", guard.ErrInvalid, q.Name)
	}
	words := strings.ToLower(strings.Join(strings.Fields(q.Next), " "))
	switch {
	case !strings.Contains(words, "for update") || !strings.HasSuffix(strings.TrimRight(words, "; "), "skip locked"):
		return fmt.Errorf("%w: jobs: Queue.Next has to end in FOR UPDATE SKIP LOCKED: else a row is taken as it was before another worker finished it", guard.ErrInvalid)
	case q.Key == nil:
		return fmt.Errorf("%w: jobs: Queue.Key is missing", guard.ErrInvalid)
	case q.Workers < 1 || q.MaxRun < 0 || q.Poll < 0 || q.Pause < 0:
		return fmt.Errorf("%w: jobs: Queue has Workers %d, MaxRun %v, Poll %v, Pause %v: none may be negative", guard.ErrInvalid, q.Workers, q.MaxRun, q.Poll, q.Pause)
	}
	return nil
}

// Work takes rows and calls do for each, in Queue.Workers goroutines, until ctx ends. Then it takes no more, waits for
// the functions that run, and returns nil: they aren't interrupted, unless g is closed. It returns an error at once
// if q is out of bounds, the schema isn't ready, or the queries of the Queue can't be right or lack a right (SQLSTATE
// 42...); after any other it tries again, and says so to the Logger.
//
// A row is do's until do returns, its lease is lost, or MaxRun is over, which all end its context: no transaction of job
// commits once another worker has taken the row. So the transaction that sees to it that Next doesn't select the row any
// more takes effect once. If do fails or panics the row is left alone for Queue.Pause; whether and when it is tried
// again is what Next says. If do returns nil and Next still selects the row, it is taken again.
//
// With locks in Postgres, beside the fences, the leases are those of g.Locker. Else Work has a lock service in Postgres
// of its own, and nobody else may guard the queue's resources under g.
func Work[Row any](ctx context.Context, g *fencekit.Client, q Queue[Row], do func(ctx context.Context, job Job[Row]) error) error {
	if g == nil || do == nil {
		return fmt.Errorf("%w: jobs: Work needs a Guard and a function", guard.ErrInvalid)
	}
	if err := q.fill(); err != nil {
		return err
	}
	w := &worker[Row]{Queue: q, guard: g, do: do, freed: make(chan struct{}, 1), unfit: map[string]bool{}}
	w.pool = g.Store.Pool()
	schema, shard := g.Store.Place()
	w.shard, w.schema = shard, pgx.Identifier{schema}.Sanitize()
	beside, ok := g.Locker.(*pglock.Locker)
	if w.locker = beside; !ok || beside.Beside(w.pool, schema) == nil {
		var err error
		if w.locker, err = pglock.New(w.pool, &pglock.Config{Schema: schema, Logger: q.Logger}); err != nil {
			return err
		}
		defer w.locker.Close(context.WithoutCancel(ctx))
	}
	ctx, cancel := context.WithCancel(ctx)
	var sweeping sync.WaitGroup
	sweeping.Go(func() { w.sweep(ctx) })
	defer sweeping.Wait()
	defer cancel()
	return w.work(ctx)
}

type worker[Row any] struct {
	Queue[Row]
	guard  *fencekit.Client
	do     func(ctx context.Context, job Job[Row]) error
	locker *pglock.Locker
	pool   *pgxpool.Pool
	schema string // quoted
	shard  string
	known  bool            // the database has the queue
	unfit  map[string]bool // names that can't be a resource's, which the Logger was told

	freed chan struct{} // has a signal when a function has returned

	mu      sync.Mutex
	running int
	ended   []ended
}

// ended is the lease of a function that has returned, which is given back from a time on.
type ended struct {
	lease fence.Lease
	from  time.Time
}

func (w *worker[Row]) work(ctx context.Context) error {
	var running sync.WaitGroup
	defer func() { w.giveBack(context.WithoutCancel(ctx), time.Now().Add(w.Pause)) }()
	defer running.Wait()
	for ctx.Err() == nil {
		free := w.free()
		var took []taken[Row]
		var err error
		if free > 0 {
			took, err = w.take(ctx, free)
		} else {
			w.giveBack(ctx, time.Now())
		}
		switch {
		case lasting(err):
			return fmt.Errorf("jobs: %s: %w", w.Name, err)
		case err != nil && ctx.Err() == nil:
			w.Logger.Warn("jobs: no row could be taken; it will be tried again", "queue", w.Name, "error", err)
		}
		for _, t := range took {
			running.Go(func() { w.run(ctx, t) })
		}
		w.wait(ctx, free-len(took))
	}
	return nil
}

func (w *worker[Row]) free() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Workers - w.running
}

// wait returns when a function has returned; or, if some more could run, after a while, and else once a lease is to be
// given back.
func (w *worker[Row]) wait(ctx context.Context, idle int) {
	var poll <-chan time.Time
	if idle > 0 {
		poll = time.After(w.Poll)
	} else if from, some := w.nextDue(); some {
		poll = time.After(time.Until(from))
	}
	select {
	case <-w.freed:
	case <-poll:
	case <-ctx.Done():
	}
}

// takeTimeout bounds the transaction that takes rows, in which the rows that it reads are locked.
const takeTimeout = 5 * time.Second

func (w *worker[Row]) take(ctx context.Context, want int) (took []taken[Row], err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*takeTimeout)
	defer cancel()
	if err := w.know(ctx); err != nil {
		return nil, err
	}
	begin := fmt.Sprintf("begin isolation level read committed read write; set local lock_timeout = %d; set local statement_timeout = %[1]d; "+
		"set local idle_in_transaction_session_timeout = %[1]d", takeTimeout.Milliseconds())
	err = w.locker.Take(ctx, w.due(time.Now()), func(ctx context.Context, t *pglock.Taking) error {
		return pgx.BeginTxFunc(ctx, w.pool, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) (err error) {
			took, err = w.takeIn(ctx, tx, t, want)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += len(took)
	return took, nil
}

// taken is a row with its lease, and the claim that was made with it.
type taken[Row any] struct {
	fence.Lease
	row   Row
	claim *storage.Claim
}

// TakeClaim implements storage.ClaimedLease.
func (t taken[Row]) TakeClaim() (c storage.Claim, ok bool) {
	c, *t.claim = *t.claim, storage.Claim{}
	return c, c.Resource != 0
}

func (w *worker[Row]) takeIn(ctx context.Context, tx pgx.Tx, t *pglock.Taking, want int) (took []taken[Row], err error) {
	if _, err := tx.Exec(ctx, "declare fencekit_next no scroll cursor without hold for "+strings.TrimRight(w.Next, "; \n\t"), w.Args...); err != nil {
		return nil, err
	}
	var rows []Row
	for left, size := want, want; ; size *= 2 {
		page, err := w.fetch(ctx, tx, size)
		if err != nil {
			return nil, err
		}
		names, fit := w.named(page)
		some, err := t.Try(ctx, tx, left, w.shard, names...)
		if err != nil {
			return nil, err
		}
		for _, l := range some {
			claim := storage.Claim{Grant: l.Grant(), Resource: l.Fence, Position: storage.Position{Seq: l.Seq, Tx: storage.TxID(l.Tx)}}
			took, rows = append(took, taken[Row]{l.Lease, fit[l.Place], &claim}), append(rows, fit[l.Place])
		}
		if left -= len(some); left == 0 || len(page) < size {
			break
		}
	}
	if w.Taken != nil && len(took) > 0 {
		err = w.Taken(ctx, tx, rows)
	}
	return took, err
}

// named returns the resources of those rows that can have one.
func (w *worker[Row]) named(rows []Row) (names []string, fit []Row) {
	for _, row := range rows {
		key := w.Key(row)
		name := w.Name + "/" + key
		err := fence.ValidateResource(name)
		switch {
		case key != "" && err == nil:
			names, fit = append(names, name), append(fit, row)
		case !w.unfit[name]:
			w.unfit[name] = true
			w.Logger.Warn("jobs: a row is passed over: its key can't name a resource", "queue", w.Name, "key", key, "error", err)
		}
	}
	return names, fit
}

func (w *worker[Row]) fetch(ctx context.Context, tx pgx.Tx, n int) ([]Row, error) {
	// Not prepared: the server would describe the rows of the cursor that was there then (findings/pgx-prepared-fetch.sh).
	rows, err := tx.Query(ctx, fmt.Sprintf("fetch %d from fencekit_next", n), pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	read, failed := 0, error(nil)
	page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Row, err error) {
		read++
		r, failed = w.Scan(row)
		return r, failed
	})
	if failed != nil {
		return nil, lastingError{fmt.Errorf("reading row %d of Queue.Next: %w", read, failed)}
	}
	return page, err
}

// know makes sure that the database knows the queue.
func (w *worker[Row]) know(ctx context.Context) error {
	if w.known {
		return nil
	}
	if err := w.guard.Store.Check(ctx); err != nil {
		return err
	}
	err := w.pool.QueryRow(ctx, "select exists (select from "+w.schema+".queue where name = $1)", w.Name).Scan(&w.known)
	if err != nil || w.known {
		return err
	}
	if _, err = w.pool.Exec(ctx, "insert into "+w.schema+".queue (name) values ($1) on conflict do nothing", w.Name); sqlstate(err) == "42501" {
		return fmt.Errorf("%w: as the schema's owner run: insert into %s.queue (name) values (%s)", err, w.schema, "'"+strings.ReplaceAll(w.Name, "'", "''")+"'")
	}
	w.known = err == nil
	return err
}

// due returns the leases that are to be given back by now.
func (w *worker[Row]) due(now time.Time) (due []fence.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var later []ended
	for _, e := range w.ended {
		if e.from.After(now) {
			later = append(later, e)
		} else {
			due = append(due, e.lease)
		}
	}
	w.ended = later
	return due
}

// nextDue returns when the next lease is to be given back.
func (w *worker[Row]) nextDue() (from time.Time, some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.ended {
		if !some || e.from.Before(from) {
			from, some = e.from, true
		}
	}
	return from, some
}

func (w *worker[Row]) giveBack(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, l := range w.due(now) {
		all.Go(func() { _ = l.Release(ctx) })
	}
	all.Wait()
}

func (w *worker[Row]) run(ctx context.Context, t taken[Row]) {
	resource := t.Grant().Resource
	overrun := fmt.Errorf("jobs: %s: Queue.MaxRun is over: %w", resource, context.DeadlineExceeded)
	run, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), w.MaxRun, overrun)
	defer cancel()
	stop := context.AfterFunc(run, func() { _ = t.Release(context.WithoutCancel(ctx)) }) // do may go on
	var err error
	if failure := callback.Run(func() {
		err = guard.Hold(run, w.guard.UnderLease(t), resource, func(ctx context.Context, on fencekit.Runner) error {
			return w.do(ctx, Job[Row]{on, t.row, resource})
		})
	}); failure != nil {
		err = fmt.Errorf("%w\n%s", failure, failure.Stack)
	}
	stop()
	from := time.Now()
	if err != nil {
		w.Logger.Warn("jobs: a function failed", "resource", resource, "error", err)
		from = from.Add(w.Pause)
	}
	w.mu.Lock()
	w.running--
	w.ended = append(w.ended, ended{t.Lease, from})
	w.mu.Unlock()
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// sweepEvery is how often a process looks for what others have left.
const sweepEvery = time.Second

// retireAtOnce bounds one transaction of retire.
const retireAtOnce = 1000

func (w *worker[Row]) sweep(ctx context.Context) {
	for ticks := time.NewTicker(sweepEvery); ; {
		select {
		case <-ctx.Done():
			ticks.Stop()
			return
		case <-ticks.C:
		}
		err := w.locker.EndExpired(ctx)
		for n := retireAtOnce; n == retireAtOnce && err == nil; {
			err = pgx.BeginTxFunc(ctx, w.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error { // whatever the pool's default is
				return tx.QueryRow(ctx, "select "+w.schema+".retire($1, $2)", w.Name, retireAtOnce).Scan(&n)
			})
		}
		if err != nil && ctx.Err() == nil {
			w.Logger.Warn("jobs: what others have left could not be removed; it will be tried again", "queue", w.Name, "error", err)
		}
	}
}

// lastingError is one that trying again doesn't mend.
type lastingError struct{ error }

func (e lastingError) Unwrap() error { return e.error }

func lasting(err error) bool {
	if errors.As(err, new(lastingError)) || errors.Is(err, guard.ErrInvalid) || errors.Is(err, fence.ErrClosed) {
		return true
	}
	if away := (*fence.UnavailableError)(nil); errors.As(err, &away) {
		return false
	}
	state := sqlstate(err) // of class 22 it may be a row's
	return state == "ZF014" || strings.HasPrefix(state, "42") || errors.Is(err, postgres.ErrNotReady)
}

func sqlstate(err error) string {
	if pgErr := (*pgconn.PgError)(nil); errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

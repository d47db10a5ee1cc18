package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/jobs"
)

func key(id int64) string { return strconv.FormatInt(id, 10) }

func TestWork_DoesEachJobOnceAndLeavesNothing(t *testing.T) {
	t.Parallel()
	pool := database(t, 500)
	q := queue(20)
	q.Taken = countAttempt
	serializable := func(cfg *pgxpool.Config) { // Work says the level that it needs itself
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	}
	work(t, pool, q, finish, process(t, pool), process(t, pool), process(t, pool, serializable))
	require.Equal(t, 500, count(t, pool, "effect"))
	require.Equal(t, 500, count(t, pool, "(select distinct job from effect) e"))
	require.Equal(t, 500, count(t, pool, "job where attempt = 1"))

	require.Equal(t, 500, count(t, pool, "fence.resource"))
	mustExec(t, pool, "update fence.queue set keep = '1 second'")
	mustExec(t, pool, "insert into job values (0, 'done')")
	start(t, process(t, pool, serializable), queue(1), finish)
	for _, table := range []string{"resource", "history", "lock"} {
		await(t, pool, "fence."+table, 0)
	}
}

// A worker that stood still while another one took its row and finished it can't commit, nor can what it sent the grant
// to, and each attempt is recorded.
func TestWork_RejectsAWorkerThatLostItsRow(t *testing.T) {
	t.Parallel()
	pool := database(t, 1)
	took, goOn := make(chan struct{}), make(chan struct{})
	results := make(chan error, 2)
	receiver := process(t, pool)
	start(t, process(t, pool), queue(1), func(ctx context.Context, j jobs.Job[job]) error {
		grants := guard.Grants(ctx)
		close(took)
		<-goOn
		require.NoError(t, ctx.Err(), "it doesn't know yet")
		results <- finish(ctx, j)
		results <- guard.Do(t.Context(), receiver.UnderGrant(grants...), j.Resource, func(context.Context, pgx.Tx) error { return nil })
		return nil
	})
	<-took
	other := process(t, pool) // has a session already, which doesn't end those that are over when it begins
	lease, err := other.Locker.Acquire(t.Context(), "anything")
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
	expire(t, pool)
	start(t, other, queue(1), finish)
	await(t, pool, "effect", 1)
	close(goOn)
	require.ErrorIs(t, <-results, guard.ErrStaleToken)
	require.ErrorIs(t, <-results, guard.ErrStaleToken)
	require.Equal(t, 1, count(t, pool, "effect"))
	require.NotZero(t, count(t, pool, "fence.rejection where resource = 'job/1' and reason = 'stale'"))
}

// A row is read as it is once nobody else can finish it: not before a transaction that does has ended.
func TestWork_LeavesRowsThatAreJustBeingFinished(t *testing.T) {
	t.Parallel()
	pool := database(t, 2)
	finishing, goOn := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	first := queue(1)
	start(t, process(t, pool), first, func(ctx context.Context, j jobs.Job[job]) error {
		err := guard.Do(ctx, j, j.Resource, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "with done as (update job set status = 'done' where id = $1 returning id) insert into effect select id from done", j.Row.ID); err != nil {
				return err
			}
			close(finishing)
			<-goOn
			return nil
		})
		ended <- err
		return err
	})
	<-finishing
	expire(t, pool)
	start(t, process(t, pool), queue(1), finish)
	await(t, pool, "effect where job = 2", 1)
	close(goOn)
	require.NoError(t, <-ended, "nobody has taken the row")
	require.Equal(t, 2, count(t, pool, "effect"))
}

// What fails or panics is left alone for a while, and keeps nobody from the rows behind it.
func TestWork_GoesOnPastWhatFails(t *testing.T) {
	t.Parallel()
	pool := database(t, 40)
	var tries atomic.Int32
	start(t, process(t, pool), queue(2), func(ctx context.Context, j jobs.Job[job]) error {
		if j.Row.ID < 20 {
			if tries.Add(1); j.Row.ID%2 == 0 {
				panic("poison")
			}
			return errors.New("poison")
		}
		return finish(ctx, j)
	})
	await(t, pool, "effect", 21)
	require.Eventually(t, func() bool { return tries.Load() > 2*19 }, time.Minute, time.Millisecond, "it is tried again")
}

// A row whose function failed is left alone for Pause, and no longer: here the process that had it is busy meanwhile.
func TestWork_ABusyProcessGivesBackWhatFailed(t *testing.T) {
	t.Parallel()
	pool := database(t, 2)
	busy, goOn := make(chan struct{}), make(chan struct{})
	start(t, process(t, pool), queue(1), func(ctx context.Context, j jobs.Job[job]) error {
		if j.Row.ID == 1 {
			return errors.New("later")
		}
		close(busy)
		<-goOn
		return finish(ctx, j)
	})
	t.Cleanup(func() { close(goOn) })
	<-busy
	start(t, process(t, pool), queue(1), finish)
	await(t, pool, "effect where job = 1", 1)
}

// A row that can't be a resource keeps nobody from the rows behind it.
func TestWork_PassesOverWhatCanNotBeAResource(t *testing.T) {
	t.Parallel()
	pool := database(t, 4)
	q := queue(1)
	q.Key = func(j job) string { return [...]string{"", "a\nb", strings.Repeat("k", 1000), "4"}[j.ID-1] }
	var log lines
	q.Logger = slog.New(slog.NewTextHandler(&log, nil))
	start(t, process(t, pool), q, finish)
	await(t, pool, "effect where job = 4", 1)
	require.Equal(t, 3, strings.Count(log.String(), "its key can't name a resource"))
}

type lines struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.String()
}

// MaxRun frees the row for others, and a function that goes on all the same is rejected.
func TestWork_BoundsAFunction(t *testing.T) {
	t.Parallel()
	pool := database(t, 1)
	late, over, goOn := make(chan error, 1), make(chan struct{}), make(chan struct{})
	q := queue(1)
	q.MaxRun = 50 * time.Millisecond
	start(t, process(t, pool), q, func(ctx context.Context, j jobs.Job[job]) error {
		<-ctx.Done()
		require.ErrorContains(t, context.Cause(ctx), "job/1: Queue.MaxRun is over")
		close(over)
		<-goOn
		late <- finish(context.WithoutCancel(ctx), j)
		return nil
	})
	<-over
	start(t, process(t, pool), queue(1), finish)
	await(t, pool, "effect", 1)
	close(goOn)
	require.Error(t, <-late)
	require.Equal(t, 1, count(t, pool, "effect"))
}

// Work ends behind its functions, which it doesn't interrupt, and keeps nothing: a row whose function failed is free.
func TestWork_EndsBehindItsFunctions(t *testing.T) {
	t.Parallel()
	pool := database(t, 2)
	g := process(t, pool)
	q := queue(2)
	q.Pause = time.Hour
	took, goOn := make(chan struct{}, 2), make(chan struct{})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		ended <- jobs.Work(ctx, g, q, func(ctx context.Context, j jobs.Job[job]) error {
			took <- struct{}{}
			if j.Row.ID == 1 {
				return errors.New("later")
			}
			<-goOn
			require.NoError(t, ctx.Err())
			return finish(ctx, j)
		})
	}()
	<-took
	<-took
	cancel()
	select {
	case err := <-ended:
		t.Fatal(err)
	default:
	}
	close(goOn)
	require.NoError(t, <-ended)
	require.Equal(t, 1, count(t, pool, "effect where job = 2"))
	for id := range 2 {
		lease, err := g.Locker.TryAcquire(t.Context(), fmt.Sprintf("job/%d", id+1))
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
}

// A row whose resource somebody else has, by a Hold, is passed over, and keeps nobody from the rows behind it; so do
// those that are being worked on, also where the query doesn't pass over them.
func TestWork_PassesOverWhatOthersHave(t *testing.T) {
	t.Parallel()
	pool := database(t, 30)
	q := queue(1)
	q.Next = "select id, attempt from job where status = 'open' order by id for update skip locked;"
	goOn := make(chan struct{})
	holding := make(chan struct{}, 21)
	held, others := process(t, pool), process(t, pool)
	go func() {
		_ = guard.Hold(t.Context(), held, "job/1", func(context.Context, fencekit.Runner) error {
			holding <- struct{}{}
			<-goOn
			return nil
		})
	}()
	<-holding
	busy := queue(20)
	busy.Next = q.Next
	start(t, others, busy, func(ctx context.Context, j jobs.Job[job]) error {
		holding <- struct{}{}
		<-goOn
		return finish(ctx, j)
	})
	for range 20 {
		<-holding
	}
	start(t, process(t, pool), q, finish)
	await(t, pool, "effect where job > 21", 9)
	require.Equal(t, 9, count(t, pool, "effect"))
	close(goOn)
	await(t, pool, "effect where job <> 1", 29)
	require.NoError(t, held.Close(t.Context()), "it would keep job/1 for a while")
	await(t, pool, "effect", 30)
}

// One connection is enough for all, and what a queue reads doesn't depend on what another one has read on it: see
// findings/pgx-prepared-fetch.sh.
func TestWork_QueuesShareAConnection(t *testing.T) {
	t.Parallel()
	g := process(t, database(t, 0), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	reads(t, g, "whole", "select 7::int8 for update skip locked", int64(7))
	reads(t, g, "half", "select 1.5::float8 for update skip locked", 1.5)
}

func reads[Row any](t *testing.T, g *fencekit.Client, name, next string, want Row) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	q := jobs.Queue[Row]{Name: name, Next: next, Workers: 1, Key: func(row Row) string { return fmt.Sprint(row) }}
	var got Row
	require.NoError(t, jobs.Work(ctx, g, q, func(ctx context.Context, j jobs.Job[Row]) error {
		got = j.Row
		cancel()
		return nil
	}))
	require.Equal(t, want, got)
}

// Where the Guard's locks are in another place, the rows' are in Postgres all the same.
func TestWork_BesideAnotherLockService(t *testing.T) {
	t.Parallel()
	pool := database(t, 50)
	own := connect(t, pool.Config().ConnString())
	g, err := fencekit.New(own, &fencekit.Config{Locker: elsewhere{locker(t, own)}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	work(t, pool, queue(5), finish, g)
	require.Equal(t, 50, count(t, pool, "effect"))
}

// elsewhere is not a *pglock.Locker.
type elsewhere struct{ fencekit.Locker }

func TestWork_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	pool := database(t, 1)
	g := process(t, pool)
	for want, change := range map[string]func(q *jobs.Queue[job]){
		`Queue.Name is ""`:            func(q *jobs.Queue[job]) { q.Name = "" },
		`Queue.Name is "a\x00"`:       func(q *jobs.Queue[job]) { q.Name = "a\x00" },
		"FOR UPDATE SKIP LOCKED":      func(q *jobs.Queue[job]) { q.Next = "select id from job" },
		"Queue.Key is missing":        func(q *jobs.Queue[job]) { q.Key = nil },
		"Workers -1":                  func(q *jobs.Queue[job]) { q.Workers = -1 },
		"Poll -1s":                    func(q *jobs.Queue[job]) { q.Poll = -time.Second },
		"42P01":                       func(q *jobs.Queue[job]) { q.Next = "select * from nothing for update skip locked" },
		"42601":                       func(q *jobs.Queue[job]) { q.Next = "delete from job where for update skip locked" },
		"reading row 1 of Queue.Next": func(q *jobs.Queue[job]) { q.Next = "select * from job for update skip locked" },
	} {
		q := queue(1)
		change(&q)
		err := jobs.Work(t.Context(), g, q, finish)
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, jobs.Work(t.Context(), nil, queue(1), finish), guard.ErrInvalid)
	require.NoError(t, g.Close(t.Context()))
	require.ErrorIs(t, jobs.Work(t.Context(), g, queue(1), finish), fence.ErrClosed)
}

// The schema's owner says what a queue is; a role that may not says how.
func TestWork_UnderAnAppRole(t *testing.T) {
	t.Parallel()
	pool := database(t, 3)
	g := process(t, pool, appRole(t, pool))
	require.ErrorContains(t, jobs.Work(t.Context(), g, queue(1), finish), `as the schema's owner run: insert into "fence".queue (name) values ('job')`)
	mustExec(t, pool, "insert into fence.queue (name) values ('job')")
	work(t, pool, queue(1), finish, g)
	require.Equal(t, 3, count(t, pool, "effect"))
}

package adopt

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/examples/adopt/after"
	"github.com/fencekit/fencekit/examples/adopt/before"
	"github.com/fencekit/fencekit/examples/adopt/beside"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/jobs"
	"github.com/fencekit/fencekit/storage/postgres"
)

// worker does jobs until ctx ends, and then the one that it has.
type worker struct {
	run  func(ctx context.Context, do before.Do) error
	beat func() error // for job 1
}

// workers starts workers of one form. free is the condition on which another one of that form takes an open job sooner or
// later.
type workers struct {
	world
	start func(name string) worker
	free  string
}

const unclaimed = "(claimed_until is null or claimed_until < now())"

func (w world) homeMade() workers {
	return workers{w, func(name string) worker {
		old := &before.Worker{Pool: w.pool, Name: name, TTL: time.Hour}
		return worker{old.Run, func() error { return old.Heartbeat(w.Context(), before.Job{ID: 1}) }}
	}, unclaimed}
}

// converted workers have a pool and a lock service each, as processes have, which isn't told when its session is over.
func (w world) converted(queue jobs.Queue[after.Job], wrap func(after.Do) after.Do) workers {
	return workers{w, func(string) worker {
		pool, err := pgxpool.New(context.Background(), w.pool.Config().ConnString())
		require.NoError(w, err)
		w.Cleanup(pool.Close)
		locker, err := pglock.New(pool, &pglock.Config{TTL: 5 * time.Minute})
		require.NoError(w, err)
		g, err := fencekit.New(pool, &fencekit.Config{Locker: locker})
		require.NoError(w, err)
		w.Cleanup(func() { _ = g.Close(context.Background()) })
		p := &after.Worker{Guard: g, Queue: queue}
		return worker{func(ctx context.Context, do before.Do) error {
			return p.Run(ctx, wrap(func(ctx context.Context, job after.Job) (func(context.Context, pgx.Tx) error, error) {
				return do(ctx, before.Job(job))
			}))
		}, func() error { return nil }}
	}, "true"}
}

func (w world) after() workers {
	return w.converted(after.Queue, func(do after.Do) after.Do { return do })
}

func (w world) beside() workers { return w.converted(beside.Queue(), beside.Do) }

// careful is the home-made form without its bugs: each statement names the attempt, and the one that decides is the last.
func (w world) careful() workers {
	const mine = " where id = 1 and status = 'open' and attempts = $1 returning id"
	return workers{w, func(string) worker {
		var attempt int
		return worker{func(ctx context.Context, do before.Do) error {
			ctx = context.WithoutCancel(ctx)
			err := w.pool.QueryRow(ctx, `update job set claimed_until = now() + interval '1 hour', attempts = attempts + 1
				where id = (select id from job where status = 'open' and `+unclaimed+` for update skip locked) returning attempts`).Scan(&attempt)
			if err != nil {
				return err
			}
			write, err := do(ctx, before.Job{ID: 1})
			if err == nil {
				err = pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
					return errors.Join(write(ctx, tx), tx.QueryRow(ctx, "update job set status = 'done'"+mine, attempt).Scan(nil))
				})
			}
			if err != nil {
				_, _ = w.pool.Exec(ctx, "update job set claimed_until = null"+mine, attempt)
			}
			return nil
		}, func() error {
			_, err := w.pool.Exec(w.Context(), "update job set claimed_until = now() + interval '1 hour'"+mine, attempt)
			return err
		}}
	}, unclaimed}
}

// past has the effect of all workers having been stopped until their claims and leases were over.
func (w world) past() {
	w.Helper()
	w.exec("update job set claimed_until = now() - interval '1 second' where status = 'open' and claimed_until is not null")
	w.exec("update fence.lock_session set expires_at = clock_timestamp()")
}

// does has p do one job, in which work runs before the transaction that writes its result, and writing in it. It returns
// the job.
func (w world) does(p worker, work func() error, writing func()) (id int64) {
	w.Helper()
	ctx, stop := context.WithTimeout(w.Context(), time.Minute)
	defer stop()
	require.NoError(w, p.run(ctx, func(_ context.Context, job before.Job) (write func(context.Context, pgx.Tx) error, err error) {
		stop()
		id = job.ID
		if work != nil {
			err = work()
		}
		return func(ctx context.Context, tx pgx.Tx) error {
			if writing != nil {
				defer writing()
			}
			return result(ctx, tx, job)
		}, err
	}))
	require.NotZero(w, id, "no job was free")
	return id
}

func result(ctx context.Context, tx pgx.Tx, job before.Job) error {
	_, err := tx.Exec(ctx, "insert into result values ($1, $2)", job.ID, job.Payload)
	return err
}

// doesIfFree has another worker do the job if it gets it.
func (w workers) doesIfFree(name string) {
	w.Helper()
	if w.number("select count(*) from job where status = 'open' and "+w.free) > 0 {
		w.does(w.start(name), nil, nil)
	}
}

// Each bug is a schedule of one job, with how many results the home-made worker writes.
var workerBugs = map[string]struct {
	homeMade int
	schedule func(w workers)
}{
	"the claim is checked before the writes": {2, func(w workers) {
		w.does(w.start("worker-0"), nil, func() {
			w.past() // while it is stopped here
			w.does(w.start("worker-1"), nil, nil)
		})
	}},
	"a failure is noted by id alone": {2, func(w workers) {
		w.does(w.start("worker-0"), func() error {
			w.past()
			w.does(w.start("worker-1"), nil, nil)
			return nil // it finds the claim lost, and fails
		}, nil)
		w.doesIfFree("worker-2")
	}},
	"a heartbeat extends the claim of another": {0, func(w workers) {
		a := w.start("worker-0")
		w.does(a, func() error {
			w.past()
			w.does(w.start("worker-1"), func() error {
				w.past() // it is killed
				_ = a.beat()
				w.doesIfFree("worker-2")
				return errors.New("killed")
			}, nil)
			return nil
		}, nil)
	}},
	"a worker's stable name in place of a token": {2, func(w workers) {
		w.does(w.start("worker-0"), func() error {
			w.past()
			w.does(w.start("worker-0"), nil, nil) // restarted
			return nil
		}, nil)
	}},
}

func TestAdopt_TheHomeMadeWorkerGoesWrong(t *testing.T) {
	for bug, b := range workerBugs {
		t.Run(bug, func(t *testing.T) {
			w := newWorld(t).withJobs(1)
			b.schedule(w.homeMade())
			require.Equal(t, b.homeMade, w.number("select count(*) from result"))
		})
	}
}

func TestAdopt_TheConvertedWorkerWritesOnce(t *testing.T) {
	for bug, b := range workerBugs {
		t.Run(bug, func(t *testing.T) {
			w := newWorld(t).withJobs(1)
			b.schedule(w.after())
			require.Equal(t, 1, w.number("select count(*) from result"))
			require.NotZero(t, w.number("select count(*) from fence.rejection"))
		})
		t.Run("careful, "+bug, func(t *testing.T) {
			w := newWorld(t).withJobs(1)
			b.schedule(w.careful())
			require.Equal(t, 1, w.number("select count(*) from result"))
		})
	}
}

func (w world) withJobs(n int) world {
	w.exec("insert into job (id, payload) select n + i, 'of ' || i from generate_series(1, $1::int) i, (select count(*) from job) c (n)", n)
	return w
}

// Old and new workers do the jobs of one table, each once, and one form may follow the other in either direction.
func TestAdopt_OldAndNewWorkersShareTheTable(t *testing.T) {
	const n = 60
	w := newWorld(t).withJobs(n)
	w.protect("result", "'job/' || job_id", postgres.ProtectAudit)
	around := func() int { return w.number("select count(*) from fence.unguarded_write") }
	old, both := w.homeMade(), w.beside()
	var ids []int64
	var during func(order ...workers) func() error
	during = func(order ...workers) func() error {
		return func() error {
			if len(order) > 0 {
				ids = append(ids, w.does(order[0].start("worker-0"), during(order[1:]...), nil))
			}
			return nil
		}
	}
	require.NoError(t, during(old, both, both, old, both)())
	require.Equal(t, []int64{5, 4, 3, 2, 1}, ids, "each passes over what those before it have")

	require.EqualValues(t, 6, w.does(both.start(""), func() error {
		w.past() // it is stopped
		require.EqualValues(t, 6, w.does(old.start("worker-0"), nil, nil))
		return nil
	}, nil))
	require.EqualValues(t, 7, w.does(both.start(""), func() error {
		w.exec("update job set claimed_until = now() where id = 7") // it is stopped until then
		return nil
	}, func() {
		require.EqualValues(t, 8, w.does(old.start("worker-0"), nil, nil), "7 is locked until COMMIT")
	}))
	require.EqualValues(t, 9, w.does(both.start(""), func() error {
		w.exec("update fence.lock_session set expires_at = clock_timestamp()") // it is killed
		require.EqualValues(t, 9, w.does(both.start(""), nil, nil), "long before claimed_until")
		return nil
	}, nil))

	w.together(old, both, old, both)
	w.withJobs(20)
	w.together(old, old) // back
	require.GreaterOrEqual(t, around(), 20)
	none := around()
	w.withJobs(20)
	w.together(both, w.after())
	require.Equal(t, none, around(), "no old worker wrote")
	w.protect("result", "'job/' || job_id", postgres.ProtectEnforce)
	w.exec("alter table job drop claimed_by, drop claimed_until")
	w.withJobs(20)
	w.together(w.after())
	require.Equal(t, n+60, w.number("select count(*) from result"))
	require.Equal(t, n+60, w.number("select count(distinct job_id) from result"))
}

// together has workers of forms run beside each other until all jobs are done.
func (w world) together(forms ...workers) {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	var running sync.WaitGroup
	for _, form := range forms {
		p := form.start("worker-0")
		running.Go(func() {
			_ = p.run(ctx, func(_ context.Context, job before.Job) (func(context.Context, pgx.Tx) error, error) {
				return func(ctx context.Context, tx pgx.Tx) error { return result(ctx, tx, job) }, nil
			})
		})
	}
	require.Eventually(w, func() bool { return w.number("select count(*) from job where status = 'open'") == 0 }, time.Minute, 10*time.Millisecond)
	stop()
	running.Wait()
}

package jobs_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/internal/test/pause"
	"github.com/fencekit/fencekit/jobs"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Processes of ten workers each stop in front of a job's last transaction until another one has done it, or are killed
// there. With the fence each job takes effect once; without it those that stopped do it again.
func TestProcesses_DoEachJobOnceWhateverStopsThem(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprintf("fenced %v", fenced), func(t *testing.T) {
			t.Parallel()
			pool := database(t, 600)
			(&crew{TB: t, pool: pool, fenced: fenced}).run()
			require.Equal(t, 600, count(t, pool, "(select distinct job from effect) e"))
			require.NotZero(t, count(t, pool, "job where attempt > 1"))
			if twice := count(t, pool, "effect") - 600; fenced {
				require.Zero(t, twice)
				require.NotZero(t, count(t, pool, "fence.rejection where reason = 'stale'"))
			} else {
				require.NotZero(t, twice, "the control has to break")
			}
		})
	}
}

const workerVariable = "JOBS_WORKER"

// crew are worker processes. Each that stops or is killed is replaced.
type crew struct {
	testing.TB
	pool   *pgxpool.Pool
	fenced bool

	mu        sync.Mutex
	processes []*exec.Cmd
	stopped   int // that have not gone on, and come to the end of their job
}

func (c *crew) begin() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%v %s", workerVariable, c.fenced, c.pool.Config().ConnString()))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.Error(err)
		return
	}
	c.mu.Lock()
	c.processes = append(c.processes, cmd)
	c.mu.Unlock()
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			switch what, id, _ := strings.Cut(lines.Text(), " "); what {
			case "kills":
				c.begin()
			case "stops":
				c.note(1)
				c.begin()
				go c.resume(cmd, id)
			case "late":
				c.note(-1)
			}
		}
	}()
}

func (c *crew) note(stopped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped += stopped
}

// resume has a process go on once another one has done its job.
func (c *crew) resume(cmd *exec.Cmd, id string) {
	for done := false; !done; time.Sleep(5 * time.Millisecond) {
		stopped, err := pause.Stopped(cmd.Process.Pid)
		if err == nil && stopped {
			err = c.pool.QueryRow(c.Context(), "select status = 'done' from job where id = $1::bigint", id).Scan(&done)
		}
		if err != nil {
			return // the test has failed
		}
	}
	_ = cmd.Process.Signal(syscall.SIGCONT)
}

// run ends once all jobs are done, by those too that were stopped.
func (c *crew) run() {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, p := range c.processes {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
	}()
	for range 3 {
		c.begin()
	}
	await(c, c.pool, "job where status = 'open'", 0)
	require.Eventually(c, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.stopped == 0
	}, time.Minute, 5*time.Millisecond)
}

// ofWorker is the main function of a worker process.
func ofWorker(fenced bool, dsn string) error {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return err
	}
	l, err := pglock.New(pool, &pglock.Config{TTL: 2 * time.Second})
	if err != nil {
		return err
	}
	g, err := fencekit.New(pool, &fencekit.Config{Locker: l, Store: postgres.Config{StatementTimeout: time.Second}})
	if err != nil {
		return err
	}
	q := queue(10)
	q.Taken = countAttempt
	var alone sync.Mutex
	return jobs.Work(context.Background(), g, q, func(ctx context.Context, j jobs.Job[job]) error {
		time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		first := j.Row.Attempt == 0
		switch {
		case first && j.Row.ID%200 == 0:
			alone.Lock() // a process that is killed here never goes on
			fmt.Println("stops", j.Row.ID)
			if err := pause.Self(); err != nil {
				return err
			}
			defer alone.Unlock()
			defer fmt.Println("late", j.Row.ID)
		case first && j.Row.ID%200 == 100:
			alone.Lock()
			fmt.Println("kills", j.Row.ID)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if fenced {
			return finish(context.WithoutCancel(ctx), j)
		}
		_, err := pool.Exec(context.WithoutCancel(ctx), "with done as (update job set status = 'done' where id = $1 returning id) insert into effect select id from done", j.Row.ID)
		return err
	})
}

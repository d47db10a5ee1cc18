package python_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guardhttp"
	"github.com/fencekit/fencekit/internal/testenv/child"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// Flags, after -args.
var (
	pausesFlag = flag.Int("pauses", 4, "how often each process is paused")
	seedFlag   = flag.Uint64("seed", 0, "of the pauses; 0 chooses one")
)

const (
	// ttl is the locks' time to live. Each pause is longer.
	ttl = 2 * time.Second
	// patience is how long the gateway waits for Python before it gives its lock up.
	patience = time.Second
	// bound is far above what the slowest machine needs.
	bound = 5 * time.Minute
)

// shared is a counter that a process in Go and one in Python count up, each under locks in etcd:
// the Go process acquires its own; the gateway, in the test's process, acquires Python's and sends
// them along with requests. Neither may end sessions of the other.
type shared struct {
	*testing.T
	pool    *pgxpool.Pool // the owner's
	url     string        // of Python
	py, go_ *counter
}

// counter is one of the processes, and what it has said.
type counter struct {
	*child.Process
	mu       sync.Mutex
	outcomes map[string]int
	pauses   int // of one goroutine
	read     sync.WaitGroup
}

func newShared(t *testing.T, args ...string) *shared {
	t.Helper()
	dsn, pool := database(t)
	pyDSN, goDSN := roles(t, dsn, pool)
	s := &shared{T: t, pool: pool}

	python := program(t, "worker.py", args...)
	python.Env = append(python.Env, "FENCEKIT_DSN="+pyDSN)
	var out *bufio.Reader
	s.py, out = start(t, python)
	port, err := out.ReadString('\n')
	require.NoError(t, err)
	s.url = "http://127.0.0.1:" + strings.TrimSpace(port)
	s.py.listen(out)

	spec, err := json.Marshal(workerSpec{Endpoint: etcdserver.Shared(t).Endpoint(), DSN: goDSN, Prefix: t.Name()})
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	worker := exec.Command(self)
	worker.Env = append(os.Environ(), workerVar+"="+string(spec))
	s.go_, out = start(t, worker)
	s.go_.listen(out)
	return s
}

func start(t *testing.T, cmd *exec.Cmd) (*counter, *bufio.Reader) {
	t.Helper()
	out, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = writer, os.Stderr
	c := &counter{outcomes: map[string]int{}}
	c.Process, err = child.Start(cmd)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	t.Cleanup(func() {
		require.NoError(t, c.Kill())
		c.read.Wait()
		require.NoError(t, out.Close())
	})
	return c, bufio.NewReader(out)
}

// listen counts the lines that the process prints.
func (c *counter) listen(out *bufio.Reader) {
	c.read.Go(func() {
		for {
			line, err := out.ReadString('\n')
			if err != nil {
				return
			}
			c.mu.Lock()
			c.outcomes[strings.TrimSuffix(line, "\n")]++
			c.mu.Unlock()
		}
	})
}

func (c *counter) count(outcome string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcomes[outcome]
}

func (c *counter) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("paused %d times, %v", c.pauses, c.outcomes)
}

// run has both count, with pauses, until enough returns true, and then lets both finish. Enough
// is asked after each pause.
func (s *shared) run(seed uint64, enough func() bool) {
	s.Helper()
	s.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(s.Context(), bound)
	defer cancel()
	var working sync.WaitGroup
	stop := func() { cancel(); working.Wait() }
	defer stop()
	working.Go(func() { s.gateway(ctx) })
	random := rand.New(rand.NewPCG(seed, 0))
	for s.pause(ctx, random) && !enough() {
	}
	timedOut := ctx.Err() != nil
	stop()
	s.finish()
	s.Logf("Python: %s", s.py.said())
	s.Logf("Go: %s", s.go_.said())
	require.False(s, timedOut, "inconclusive: what the test waits for has not happened")
}

// pause stops one of the processes, or both, for longer than a lease lasts, after a while in which
// they run. It reports whether to go on.
func (s *shared) pause(ctx context.Context, random *rand.Rand) bool {
	victims := [][]*counter{{s.py}, {s.go_}, {s.py}, {s.go_}, {s.py, s.go_}}[random.IntN(5)]
	if !sleep(ctx, 100*time.Millisecond+time.Duration(random.Int64N(int64(600*time.Millisecond)))) {
		return false
	}
	for _, c := range victims {
		if err := c.Pause(); err != nil {
			s.Error(err)
			return false
		}
		c.pauses++
	}
	more := sleep(ctx, ttl+time.Duration(random.Int64N(int64(time.Second))))
	for _, c := range victims {
		if err := c.Resume(); err != nil {
			s.Error(err)
		}
	}
	return more
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// gateway acquires the resource again and again, and sends the grant to Python.
func (s *shared) gateway(ctx context.Context) {
	client, err := clientv3.New(etcd.ClientConfig(etcdserver.Shared(s.T).Endpoint()))
	if err != nil {
		s.Error(err)
		return
	}
	defer client.Close()
	locker, err := etcd.NewLocker(client, &etcd.Config{Prefix: s.Name(), TTL: ttl, Label: "gateway"})
	if err != nil {
		s.Error(err)
		return
	}
	defer func() { _ = locker.Close(context.Background()) }()
	for ctx.Err() == nil {
		lease, err := locker.Acquire(ctx, "counter")
		if err != nil {
			continue // the lease was lost, or ctx has ended
		}
		_ = s.request(ctx, func(h http.Header) { guardhttp.SetGrants(h, lease.Grant()) }) // Python says what came of it
		_ = lease.Release(ctx)
	}
}

func (s *shared) request(ctx context.Context, set func(http.Header)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, nil)
	if err != nil {
		return err
	}
	set(r.Header)
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// finish waits until both have said what came of all that they began.
func (s *shared) finish() {
	s.Helper()
	require.NoError(s, errors.Join(s.py.Resume(), s.go_.Resume()))
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url, nil)
	require.NoError(s, err)
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	require.NoError(s, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(s, errors.Join(err, response.Body.Close()))
	require.NoError(s, s.go_.Signal(stopSignal))
	require.True(s, s.go_.Wait().Success())
	require.NoError(s, s.py.Kill())
	s.py.read.Wait()
	s.go_.read.Wait()
}

// sealsRejected is how many of Python's transactions were superseded while they ran.
func (s *shared) sealsRejected() (n int) {
	if err := s.pool.QueryRow(s.Context(), "select count(*) from fence.rejection where stage = 'seal' and holder like 'gateway%'").Scan(&n); err != nil {
		s.Error(err)
	}
	return n
}

func (s *shared) acknowledged() int { return s.py.count("committed") + s.go_.count("committed") }

func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64N(1 << 32)
}

// A process in Python and one in Go share a resource, and each is stopped for longer than a lease
// lasts, at random. No update is lost, and the history has each of them.
func TestShared_PythonAndGoLoseNoUpdateUnderPauses(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	s.run(seed(), func() bool {
		return s.py.pauses >= *pausesFlag && s.go_.pauses >= *pausesFlag && s.py.count("committed") > 0 && s.go_.count("committed") > 0 &&
			s.sealsRejected() > 0
	})
	require.Zero(t, s.py.count("unknown")+s.go_.count("unknown"), "the database was never away")
	require.EqualValues(t, s.acknowledged(), counted(t, s.pool))
	written := map[string]int{}
	for _, entry := range history(t, s.pool) {
		if kind, name, _ := strings.Cut(entry, " "); kind == "write" {
			written[name[strings.LastIndex(name, " ")+1:]]++
		}
	}
	require.Equal(t, map[string]int{"python": s.py.count("committed"), "go": s.go_.count("committed")}, written)
	records, err := audit.Open(s.pool, "")
	require.NoError(t, err)
	report, err := records.Verify(t.Context(), audit.VerifyOptions{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Positive(t, report.Entries)
}

// Without the seal the same loses updates: the test above can fail.
func TestShared_WithoutTheSealUpdatesAreLost(t *testing.T) {
	t.Parallel()
	s := newShared(t, "unsealed")
	s.run(seed(), func() bool {
		acknowledged := s.acknowledged() // those after it count for the counter alone
		var value int
		err := s.pool.QueryRow(context.Background(), "select value from counter").Scan(&value)
		return err == nil && acknowledged > value
	})
	require.Less(t, counted(t, s.pool), int64(s.acknowledged()))
}

package pause_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fencekit/fencekit/internal/clock"
	"github.com/fencekit/fencekit/internal/pause"
)

const tickerEnv = "FENCEKIT_TEST_PAUSE_TICKER"

// gap is the longest time that a goroutine didn't run, on the machine's clock.
type gap struct{ From, To int64 }

// ticker is a goroutine on its own thread that never waits.
type ticker struct {
	mu      sync.Mutex
	last    int64
	longest gap
}

func (k *ticker) run() {
	runtime.LockOSThread()
	for {
		k.tick(clock.Now())
		runtime.Gosched() // there may be one core only
	}
}

func (k *ticker) tick(now int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last > 0 && now-k.last > k.longest.To-k.longest.From {
		k.longest = gap{k.last, now}
	}
	k.last = now
}

// take waits for a tick and returns the longest gap up to it, and forgets that.
func (k *ticker) take() gap {
	for called := clock.Now(); ; runtime.Gosched() {
		k.mu.Lock()
		if k.last > called && k.longest.To > 0 {
			defer k.mu.Unlock()
			defer func() { k.longest = gap{} }()
			return k.longest
		}
		k.mu.Unlock()
	}
}

// tickForEver is a worker: for each line of its input it stops its world, if it
// was given a stopper, and answers with the longest gaps of its goroutines.
func tickForEver() {
	tickers := []*ticker{new(ticker), new(ticker), new(ticker)}
	for _, k := range tickers {
		go k.run()
	}
	brokenPipe := make(chan os.Signal, 1)
	signal.Notify(brokenPipe, syscall.SIGPIPE)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		for _, k := range tickers {
			k.take()
		}
		if lines.Text() == "stop" {
			if err := pause.StopTheWorld(os.NewFile(3, "stopper")); err != nil {
				fmt.Println(err)
				continue
			}
		}
		var gaps []gap
		for _, k := range tickers {
			gaps = append(gaps, k.take())
		}
		if len(brokenPipe) > 0 {
			fmt.Println("a pipe broke")
			continue
		}
		_ = json.NewEncoder(os.Stdout).Encode(gaps)
	}
	os.Exit(0)
}

type worker struct {
	*testing.T
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	stopper *pause.WorldStopper
}

func startWorker(t *testing.T) *worker {
	t.Helper()
	stopper, err := pause.NewWorldStopper()
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), tickerEnv+"=1")
	cmd.ExtraFiles = []*os.File{stopper.File()}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = stopper.Close()
	})
	require.NoError(t, stopper.File().Close())
	return &worker{T: t, cmd: cmd, in: in, out: bufio.NewReader(out), stopper: stopper}
}

func (w *worker) tell(line string) {
	w.Helper()
	_, err := fmt.Fprintln(w.in, line)
	require.NoError(w, err)
}

func (w *worker) answer() string {
	w.Helper()
	line, err := w.out.ReadString('\n')
	require.NoError(w, err)
	return strings.TrimSpace(line)
}

func (w *worker) gaps() (gaps []gap) {
	w.Helper()
	line := w.answer()
	require.NoError(w, json.Unmarshal([]byte(line), &gaps), line)
	return gaps
}

func (w *worker) next() *pause.Stop {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stop, err := w.stopper.Next(ctx)
	require.NoError(w, err)
	return stop
}

// From the return of Next to Resume no goroutine of the worker has run, on any
// thread, while the system didn't stop the process and others ran.
func TestStopTheWorld_NoGoroutineRuns(t *testing.T) {
	w, other := startWorker(t), startWorker(t)
	for range 3 {
		w.tell("stop")
		stop := w.next()
		stopped := clock.Now()
		for range 3 { // other processes run on, however long that takes
			other.tell("go on")
			for _, g := range other.gaps() {
				require.Less(t, stopped, g.To)
			}
		}
		time.Sleep(20 * time.Millisecond) // enough for goroutines that are free to tick
		bySignal, err := pause.Stopped(w.cmd.Process.Pid)
		require.NoError(t, err)
		require.False(t, bySignal)
		resumed := clock.Now()
		require.NoError(t, stop.Resume())
		for _, g := range w.gaps() {
			require.Less(t, g.From, stopped)
			require.Greater(t, g.To, resumed)
		}
	}
}

// A worker that has only announced its stop still runs.
func TestNext_WaitsForTheStopItself(t *testing.T) {
	stopper, err := pause.NewWorldStopper()
	require.NoError(t, err)
	defer stopper.Close()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer writer.Close()
	require.NoError(t, unix.Sendmsg(int(stopper.File().Fd()), []byte{0}, unix.UnixRights(int(reader.Fd())), nil, 0))
	require.NoError(t, reader.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = stopper.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

package testenv

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/process"
	"github.com/fencekit/fencekit/internal/testenv/redisserver"
)

// busyConns are the connections of an owner: one without a reference is closed
// by the garbage collector, and its backend ends.
var busyConns []*pgx.Conn

// beOrphaned starts servers, has backends that idle, sleep, compute and are
// stopped, says that it has and waits for its end.
func beOrphaned() {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ctx := context.Background()
	e, err := etcdserver.Start(ctx, nil)
	must(err)
	p, err := pgserver.Start(ctx, nil)
	must(err)
	_, err = pgbouncer.Start(ctx, p.DSN(), nil)
	must(err)
	_, err = redisserver.Start(ctx)
	must(err)
	c, err := etcdserver.StartCluster(ctx, 2, nil)
	must(err)
	busy := func(sql string) int {
		conn, err := pgx.Connect(ctx, p.DSN())
		must(err)
		busyConns = append(busyConns, conn)
		go conn.Exec(ctx, sql)
		return int(conn.PgConn().PID())
	}
	busy("select pg_sleep(1000)")
	busy("select count(*) from generate_series(1, 1e15)")
	stopped := busy("select 1")
	if strings.HasPrefix(p.Source(), "local ") {
		must(syscall.Kill(stopped, syscall.SIGSTOP))
	}
	must(e.Pause())
	must(c.Members()[0].Pause())
	runtime.GC() // servers that nothing refers to stay as well
	fmt.Println(ready)
	select {}
}

// ready is what an owner says once all runs.
const ready = "ready"

// owner is a process that has started servers, and what belongs to it.
type owner struct {
	cmd   *exec.Cmd
	roots []string // directories of its servers
	pids  []int    // of its servers and their children
}

// startOwner runs this binary as an owner.
func startOwner(t *testing.T) *owner {
	t.Helper()
	// Not t.TempDir(), which the account of a server can't enter.
	temp, err := os.MkdirTemp("", "orphan")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(temp, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(temp)) })
	o := &owner{cmd: exec.Command(os.Args[0])}
	o.cmd.Env = append(process.Environ(pgserver.DSNVar), orphanVar+"=1", "TMPDIR="+temp)
	o.cmd.Stderr = os.Stderr
	out, err := o.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, o.cmd.Start())
	t.Cleanup(func() { _ = o.cmd.Process.Kill() }) // if it isn't killed by the test: its backends compute for ever
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, ready+"\n", line)
	o.roots, err = filepath.Glob(filepath.Join(temp, "fencekit-*"))
	require.NoError(t, err)
	for _, root := range o.roots {
		pids, err := process.Inhabitants(root)
		require.NoError(t, err)
		o.pids = append(o.pids, pids...)
	}
	require.NotEmpty(t, o.pids)
	return o
}

// kill ends an owner by SIGKILL; it can do nothing about it.
func (o *owner) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, o.cmd.Process.Kill())
	require.Error(t, o.cmd.Wait())
}

// awaitEnd waits until processes are gone, or zombies whose parent doesn't wait for them.
func awaitEnd(t *testing.T, ctx context.Context, pids []int) {
	t.Helper()
	for _, pid := range pids {
		for {
			out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
			if err != nil && len(out) == 0 || strings.HasPrefix(strings.TrimSpace(string(out)), "Z") {
				break
			}
			require.NoError(t, ctx.Err(), "process %d lives", pid)
		}
	}
}

// Nothing outlives an owner that was killed: no server, none of Postgres's
// children whatever they were doing, no directory, no container.
func TestOwner_KilledLeavesNothing(t *testing.T) {
	o := startOwner(t)
	var containers []string
	for _, root := range o.roots {
		if exists(filepath.Join(root, "docker")) {
			containers = append(containers, filepath.Base(root))
		}
	}
	o.kill(t)
	ctx := patient(t)
	awaitEnd(t, ctx, o.pids)
	for _, root := range o.roots {
		for exists(root) {
			require.NoError(t, ctx.Err(), "%s is left", root)
		}
	}
	for _, name := range containers {
		require.ErrorContains(t, process.Docker(t.Context(), "container", "inspect", name), "No such container")
	}
}

// patient ends a test that hangs; no machine needs that long.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	t.Cleanup(cancel)
	return ctx
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

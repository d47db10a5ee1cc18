package testenv

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	_, err = pgbouncer.Start(ctx, p, nil)
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
	fmt.Println(ready)
	select {}
}

// ready is what an owner says once all runs.
const ready = "ready"

// isolate gives directories a place of their own: another run's sweep must not
// do what is tested here, nor a wrong sweep touch another run's.
func isolate(t *testing.T) (temp string) {
	t.Helper()
	// Not t.TempDir(), which the account of a server can't enter.
	temp, err := os.MkdirTemp("", "orphan")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(temp, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(temp)) })
	t.Setenv("TMPDIR", temp)
	return temp
}

// owner is a process that has started servers, and what belongs to it.
type owner struct {
	cmd      *exec.Cmd
	roots    []string // directories of its servers
	inDocker []string // names of containers
	pids     []int    // of its servers and their children
	servers  []int    // those of pids that are its own children
	janitor  int      // its other child
}

// startOwner runs this binary as an owner.
func startOwner(t *testing.T) *owner {
	t.Helper()
	temp := isolate(t)
	t.Setenv(orphanVar, "1")
	t.Setenv(pgserver.DSNVar, "")
	t.Setenv(etcdserver.EndpointsVar, "")
	o := &owner{cmd: exec.Command(os.Args[0])}
	o.cmd.Stderr = os.Stderr
	out, err := o.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, o.cmd.Start())
	t.Cleanup(func() { _ = o.cmd.Process.Kill() }) // if it isn't killed by the test: its backends compute for ever
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, ready+"\n", line)
	o.lookForDirectories(t, temp)
	o.lookForChildren(t)
	require.NotEmpty(t, o.servers)
	return o
}

func (o *owner) lookForDirectories(t *testing.T, temp string) {
	t.Helper()
	entries, err := os.ReadDir(temp)
	require.NoError(t, err)
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		root := filepath.Join(temp, entry.Name())
		o.roots = append(o.roots, root)
		if exists(filepath.Join(root, "docker")) {
			o.inDocker = append(o.inDocker, entry.Name())
		}
		pids, err := process.Inhabitants(root)
		require.NoError(t, err)
		o.pids = append(o.pids, pids...)
	}
}

func (o *owner) lookForChildren(t *testing.T) {
	t.Helper()
	out, err := exec.Command("ps", "-axo", "pid=,ppid=").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		var pid, parent int
		_, err := fmt.Sscan(line, &pid, &parent)
		require.NoError(t, err)
		if parent != o.cmd.Process.Pid {
			continue
		}
		if slices.Contains(o.pids, pid) {
			o.servers = append(o.servers, pid)
			continue
		}
		require.Zero(t, o.janitor, "its only child without a server's directory")
		o.janitor = pid
	}
	require.NotZero(t, o.janitor)
}

// kill ends an owner by SIGKILL; it can do nothing about it.
func (o *owner) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, o.cmd.Process.Kill())
	require.Error(t, o.cmd.Wait())
}

// ended reports whether a process is gone, or a zombie whose parent doesn't wait for it.
func ended(t *testing.T, pid int) bool {
	t.Helper()
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		require.Empty(t, out)
		return true
	}
	return strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

// Nothing outlives an owner that was killed: no server, none of Postgres's
// children whatever they were doing, no directory, no container.
func TestOwner_KilledLeavesNothing(t *testing.T) {
	o := startOwner(t)
	segments := sharedMemory(t, o.roots)
	o.kill(t)
	ctx := patient(t)
	for _, pid := range o.pids {
		for !ended(t, pid) {
			require.NoError(t, ctx.Err(), "process %d lives", pid)
		}
	}
	for _, root := range o.roots {
		for exists(root) {
			require.NoError(t, ctx.Err(), "%s is left", root)
		}
	}
	o.requireNothingInDocker(t)
	for _, id := range segments {
		require.False(t, sharedMemoryExists(id))
	}
}

// Even the janitor may be killed: servers die with their owner by the kernel,
// and the next start sweeps the rest.
func TestOwner_KilledWithItsJanitorIsSweptLater(t *testing.T) {
	o := startOwner(t)
	require.NoError(t, syscall.Kill(o.janitor, syscall.SIGKILL))
	ctx := patient(t)
	for !ended(t, o.janitor) {
		require.NoError(t, ctx.Err())
	}
	o.kill(t)
	if runtime.GOOS == "linux" {
		for _, pid := range o.servers {
			for !ended(t, pid) {
				require.NoError(t, ctx.Err(), "server %d lives", pid)
			}
		}
	}
	for _, root := range o.roots {
		require.DirExists(t, root)
	}
	dir, err := process.NewDir()
	require.NoError(t, err)
	require.NoError(t, dir.Remove())
	for _, root := range o.roots {
		require.NoDirExists(t, root)
	}
	o.requireNothingInDocker(t)
	for _, pid := range o.pids {
		for !ended(t, pid) { // it has left its directory, which is a moment before it is a zombie
			require.NoError(t, ctx.Err(), "process %d lives", pid)
		}
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

// requireNothingInDocker asserts that its containers are gone.
func (o *owner) requireNothingInDocker(t *testing.T) {
	t.Helper()
	for _, name := range o.inDocker {
		_, err := process.Docker(t.Context(), "container", "inspect", name)
		require.ErrorContains(t, err, "No such container")
	}
}

package testenv

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// orphanReport is what an owner tells of itself before it is killed.
type orphanReport struct {
	Roots   []string // directories of its servers
	Servers []int    // etcd, PgBouncer and Redis, and what else is a child
	Pids    []int    // those and their children
	Janitor int
	// InDocker are the names of containers and networks.
	InDocker []string
}

// busyConns are the connections of an owner: one without a reference is closed
// by the garbage collector, and its backend ends.
var busyConns []*pgx.Conn

// beOrphaned starts servers, has backends that idle, sleep, compute and are
// stopped, reports all that and waits for its end.
func beOrphaned() {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ctx := context.Background()
	e, err := StartEtcd(ctx, nil)
	must(err)
	p, err := StartPostgres(ctx, nil)
	must(err)
	b, err := StartPgBouncer(ctx, p, nil)
	must(err)
	r, err := StartRedis(ctx, nil)
	must(err)
	c, err := StartEtcdCluster(ctx, 2, nil)
	must(err)
	report := orphanReport{Janitor: process.JanitorPid()}
	for _, each := range []process.Controller{e.controller, p.controller, b.controller, r.controller, c.Members()[0].controller, c.Members()[1].controller} {
		report.add(each)
	}
	if network, ok := c.ground.(*dockerNetwork); ok {
		report.Roots = append(report.Roots, network.dir.Root)
		report.InDocker = append(report.InDocker, network.name())
	}
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
	for _, root := range report.Roots {
		pids, err := process.Inhabitants(root)
		must(err)
		report.Pids = append(report.Pids, pids...)
	}
	if _, local := p.controller.(*process.Server); local {
		must(syscall.Kill(stopped, syscall.SIGSTOP))
	}
	must(e.Pause())
	must(c.Members()[0].Pause())
	must(json.NewEncoder(os.Stdout).Encode(report))
	select {}
}

func (r *orphanReport) add(c process.Controller) {
	r.Roots = append(r.Roots, rootOf(c))
	if docker, ok := c.(*process.Container); ok {
		r.InDocker = append(r.InDocker, docker.Name())
		return
	}
	r.Servers = append(r.Servers, pidOf(c))
}

func rootOf(c process.Controller) string {
	if docker, ok := c.(*process.Container); ok {
		return docker.Dir.Root
	}
	return c.(*process.Server).Dir.Root
}

func pidOf(c process.Controller) int { return c.(*process.Server).Proc.Cmd.Process.Pid }

// isolate gives directories a place of their own: another run's sweep must not
// do what is tested here, nor a wrong sweep touch another run's.
func isolate(t *testing.T) {
	t.Helper()
	// Not t.TempDir(), which the account of a server can't enter.
	temp, err := os.MkdirTemp("", "orphan")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(temp, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(temp)) })
	t.Setenv("TMPDIR", temp)
}

// startOrphan runs this binary as an owner and returns what it reports.
func startOrphan(t *testing.T) (*exec.Cmd, orphanReport) {
	t.Helper()
	isolate(t)
	t.Setenv(orphanVar, "1")
	t.Setenv(PostgresDSNVar, "")
	t.Setenv(EtcdVar, "")
	cmd := exec.Command(os.Args[0])
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadBytes('\n')
	require.NoError(t, err)
	var report orphanReport
	require.NoError(t, json.Unmarshal(line, &report))
	require.NotEmpty(t, report.Pids)
	return cmd, report
}

// killOwner ends an owner by SIGKILL; it can do nothing about it.
func killOwner(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
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
// children whatever they were doing, no directory, no container, no network.
func TestOwner_KilledLeavesNothing(t *testing.T) {
	cmd, report := startOrphan(t)
	segments := sharedMemory(t, report)
	killOwner(t, cmd)
	ctx := testContext(t)
	for _, pid := range report.Pids {
		for !ended(t, pid) {
			require.NoError(t, ctx.Err(), "process %d lives", pid)
		}
	}
	for _, root := range report.Roots {
		for exists(root) {
			require.NoError(t, ctx.Err(), "%s is left", root)
		}
	}
	requireNothingInDocker(t, report)
	for _, id := range segments {
		require.False(t, sharedMemoryExists(id))
	}
}

// Even the janitor may be killed: servers die with their owner by the kernel,
// and the next start sweeps the rest.
func TestOwner_KilledWithItsJanitorIsSweptLater(t *testing.T) {
	cmd, report := startOrphan(t)
	require.NoError(t, syscall.Kill(report.Janitor, syscall.SIGKILL))
	ctx := testContext(t)
	for !ended(t, report.Janitor) {
		require.NoError(t, ctx.Err())
	}
	killOwner(t, cmd)
	if runtime.GOOS == "linux" {
		for _, pid := range report.Servers {
			for !ended(t, pid) {
				require.NoError(t, ctx.Err(), "server %d lives", pid)
			}
		}
	}
	for _, root := range report.Roots {
		require.DirExists(t, root)
	}
	dir, err := process.NewDir()
	require.NoError(t, err)
	require.NoError(t, dir.Remove())
	for _, root := range report.Roots {
		require.NoDirExists(t, root)
	}
	requireNothingInDocker(t, report)
	for _, pid := range report.Pids {
		require.True(t, ended(t, pid))
	}
}

func TestSweep_SparesTheLiving(t *testing.T) {
	isolate(t)
	e := startEtcd(t, nil)
	unlock, err := process.LockSweep()
	require.NoError(t, err)
	require.NoError(t, process.Sweep())
	unlock()
	require.NoError(t, e.ping(testContext(t)))
	require.DirExists(t, rootOf(e.controller))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// requireNothingInDocker asserts that an owner's containers and networks are gone.
func requireNothingInDocker(t *testing.T, report orphanReport) {
	t.Helper()
	if len(report.InDocker) == 0 {
		return
	}
	pool, err := process.NewDocker(testContext(t))
	require.NoError(t, err)
	for _, name := range report.InDocker {
		_, err = pool.Client.InspectContainer(name)
		require.ErrorContains(t, err, "No such container")
		_, err = pool.Client.NetworkInfo(name)
		require.ErrorContains(t, err, "No such network")
	}
}

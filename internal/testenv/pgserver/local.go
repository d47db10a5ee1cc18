package pgserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv/child"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

// errNotLocal: what was asked for needs a server whose files are here. See
// Config.Local.
var errNotLocal = errors.New("testenv: not a Postgres of this machine's own binaries: set Config.Local")

// local is what is known of a Postgres that runs from this machine's binaries, and of no other.
type local struct {
	*process.Server
	bin     binaries
	account *process.Account
	data    string
}

// startLocal runs an installed server on a data directory of its own, which fill fills.
func startLocal(ctx context.Context, bin binaries, cfg Config, fill func(context.Context, *local) error) (*Server, error) {
	account, err := process.ServerAccount()
	if err != nil {
		return nil, err
	}
	s, err := process.NewServer("postgres", nil, 1)
	if err != nil {
		return nil, err
	}
	l := &local{s, bin, account, s.Dir().Path("data")}
	p := &Server{
		Controller: s,
		local:      l,
		dsn:        "postgres://postgres@" + s.Address(0) + "/postgres?sslmode=disable",
		source:     fmt.Sprintf("local %s (%s)", bin.dir, bin.version),
	}
	if err := errors.Join(account.Mkdir(l.data), fill(ctx, l)); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	err = s.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			return account.Command(l.data, filepath.Join(bin.dir, "postgres"), arguments(l.data, s.Port(0), cfg)...), nil
		},
		Ready:       func(ctx context.Context) error { return process.Poll(ctx, p.ping) },
		StopSignals: []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT},
		KillSignals: []syscall.Signal{syscall.SIGQUIT},
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func arguments(data string, port int, cfg Config) []string {
	return append([]string{"-D", data}, settingArgs(cfg.Settings, map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "",
	})...)
}

func (l *local) tool(ctx context.Context, name string, args ...string) error {
	cmd := l.account.Command(l.data, filepath.Join(l.bin.dir, name), args...)
	out, err := os.CreateTemp(filepath.Dir(l.data), name+".log")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	proc, err := child.Start(cmd)
	if err != nil {
		return err
	}
	select {
	case <-proc.Done():
	case <-ctx.Done():
		return errors.Join(ctx.Err(), proc.Kill())
	}
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("testenv: %s as %s: %v\n%s", name, l.account, cmd.ProcessState, process.TailOf(out.Name()))
	}
	return nil
}

// emptyClusters are the empty data directories that this process has made, by their installation. Servers
// start on copies: initdb takes ten times as long. So the servers of one process have the same system
// identifier.
var emptyClusters = struct {
	mu   sync.Mutex
	dirs map[string]*process.Dir
}{dirs: map[string]*process.Dir{}}

func initData(ctx context.Context, l *local) error {
	emptyClusters.mu.Lock()
	defer emptyClusters.mu.Unlock()
	dir := emptyClusters.dirs[l.bin.dir]
	if dir == nil {
		var err error
		if dir, err = makeEmptyCluster(ctx, l); err != nil {
			return err
		}
		if len(emptyClusters.dirs) == 0 {
			process.AfterTests(removeEmptyClusters)
		}
		emptyClusters.dirs[l.bin.dir] = dir
	}
	if err := os.Remove(l.data); err != nil {
		return err
	}
	return copyTree(ctx, dir.Path("data"), l.data)
}

// makeEmptyCluster doesn't sync: nothing in the cluster is worth a crash of the machine.
func makeEmptyCluster(ctx context.Context, l *local) (*process.Dir, error) {
	dir, err := process.NewDir()
	if err != nil {
		return nil, err
	}
	empty := &local{bin: l.bin, account: l.account, data: dir.Path("data")}
	err = errors.Join(l.account.Mkdir(empty.data),
		empty.tool(ctx, "initdb", "-D", empty.data, "-U", "postgres", "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C"))
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return dir, nil
}

func removeEmptyClusters(context.Context) error {
	emptyClusters.mu.Lock()
	defer emptyClusters.mu.Unlock()
	var failed []error
	for _, dir := range emptyClusters.dirs {
		failed = append(failed, dir.Remove())
	}
	clear(emptyClusters.dirs)
	return errors.Join(failed...)
}

// Volume is a server's data as it was once. It goes with its server.
type Volume struct {
	server *local
	dir    string
}

// CopyData stops the server orderly, copies its data and starts it again.
func (p *Server) CopyData(ctx context.Context) (*Volume, error) {
	if p.local == nil {
		return nil, errNotLocal
	}
	v := &Volume{p.local, p.local.Dir().Path(fmt.Sprintf("copy-%016x", rand.Uint64()))}
	return v, p.local.WhileStopped(ctx, func() error { return copyTree(ctx, p.local.data, v.dir) })
}

// PutBack stops the server orderly, puts a copy of its data in the place of the present one and starts it
// again.
func (p *Server) PutBack(ctx context.Context, v *Volume) error {
	return p.putBack(ctx, v, func() error { return nil })
}

func (p *Server) putBack(ctx context.Context, v *Volume, change func() error) error {
	if p.local == nil {
		return errNotLocal
	}
	if p.local != v.server {
		return errors.New("testenv: this is a copy of another server's data")
	}
	return p.local.WhileStopped(ctx, func() error {
		if err := os.RemoveAll(p.local.data); err != nil {
			return err
		}
		if err := copyTree(ctx, v.dir, p.local.data); err != nil {
			return err
		}
		return change()
	})
}

func copyTree(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("testenv: cp -a %s %s: %w: %s", from, to, err, out)
	}
	return nil
}

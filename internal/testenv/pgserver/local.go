package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv/child"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

// errNotLocal: what was asked for needs a server whose files are here. See
// Config.Local.
var errNotLocal = errors.New("testenv: not a Postgres of this machine's own binaries: set Config.Local")

// local is what is known of a Postgres that runs from this machine's binaries, and
// of no other: where its files are.
type local struct {
	*process.Server
	bin     binaries
	account *process.Account
	data    string
}

// startLocal runs an installed server on a data directory of its own, which
// fill makes.
func startLocal(ctx context.Context, bin binaries, cfg Config, fill func(context.Context, *local) error) (*Server, error) {
	account, err := process.ServerAccount()
	if err != nil {
		return nil, err
	}
	s, err := process.NewServer("postgres", cfg.Log, 1)
	if err != nil {
		return nil, err
	}
	l := &local{s, bin, account, s.Dir().Path("data")}
	p := &Server{
		controller: s,
		local:      l,
		dsn:        "postgres://postgres@" + s.Address(0) + "/postgres?sslmode=disable",
		source:     fmt.Sprintf("local %s (%s)", bin.dir, bin.version),
	}
	if err := l.makeData(ctx, fill); err != nil {
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

// makeData makes the data directory and has it filled.
func (l *local) makeData(ctx context.Context, fill func(context.Context, *local) error) error {
	if err := os.Mkdir(l.data, 0o700); err != nil {
		return err
	}
	if err := l.account.Own(l.data); err != nil {
		return err
	}
	return fill(ctx, l)
}

// tool runs one of the server's own programs to its end.
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

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// ErrNotLocal: what was asked for needs a server whose files are here. See
// PostgresConfig.Local.
var ErrNotLocal = errors.New("testenv: not a Postgres of this machine's own binaries: set PostgresConfig.Local")

// local is what is known of a Postgres that runs from this machine's binaries, and
// of no other: where its files are.
type local struct {
	*process.Server
	bin     binaries
	account *account
	data    string
}

// startLocalPostgres runs an installed server on a data directory of its own, which
// fill makes.
func startLocalPostgres(ctx context.Context, bin binaries, cfg PostgresConfig, fill func(context.Context, *local) error) (*Postgres, error) {
	account, err := serverAccount()
	if err != nil {
		return nil, err
	}
	s, err := process.NewServer("postgres", cfg.Log, 1)
	if err != nil {
		return nil, err
	}
	l := &local{s, bin, account, s.Dir.Path("data")}
	p := &Postgres{
		controller: s,
		local:      l,
		dsn:        "postgres://postgres@" + s.Ports[0].Address() + "/postgres?sslmode=disable",
		source:     fmt.Sprintf("local %s (%s)", bin.dir, bin.version),
	}
	s.Ready = func(ctx context.Context) error { return process.Poll(ctx, p.ping) }
	s.StopSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}
	s.KillSignals = []syscall.Signal{syscall.SIGQUIT}
	s.Command = func() (*exec.Cmd, error) {
		return account.command(l.data, filepath.Join(bin.dir, "postgres"), postgresArgs(l.data, s.Ports[0], cfg)...), nil
	}
	if err := l.makeData(ctx, fill); err != nil {
		return nil, errors.Join(err, s.Discard())
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Discard())
	}
	return p, nil
}

func postgresArgs(data string, p *process.Port, cfg PostgresConfig) []string {
	return append([]string{"-D", data}, settingArgs(cfg.Settings, map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(p.Number),
		"unix_socket_directories": "",
	})...)
}

// makeData makes the data directory and has it filled.
func (l *local) makeData(ctx context.Context, fill func(context.Context, *local) error) error {
	if err := os.Mkdir(l.data, 0o700); err != nil {
		return err
	}
	if err := l.account.own(l.data); err != nil {
		return err
	}
	return fill(ctx, l)
}

// tool runs one of the server's own programs to its end.
func (l *local) tool(ctx context.Context, name string, args ...string) error {
	cmd := l.account.command(l.data, filepath.Join(l.bin.dir, name), args...)
	out, err := os.CreateTemp("", process.DirPrefix()+name+".log")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	proc, err := process.Start(cmd)
	if err != nil {
		return err
	}
	select {
	case <-proc.Done:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), proc.End(process.SignalBound))
	}
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("testenv: %s as %s: %v\n%s", name, l.account, cmd.ProcessState, process.TailOf(out.Name()))
	}
	return nil
}

// account is the user a server runs as: ourselves, or, because Postgres
// refuses root, another.
type account struct {
	name       string
	credential *syscall.Credential // nil: ourselves
}

func (a *account) String() string { return a.name }

// serverAccount is ourselves; for root it is postgres, else nobody.
func serverAccount() (*account, error) {
	if os.Getuid() != 0 {
		return &account{name: "user " + strconv.Itoa(os.Getuid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &account{"user " + name, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, errors.New("testenv: Postgres refuses to run as root, and there is no user postgres or nobody: run as an ordinary user")
}

// own gives a directory to the account.
func (a *account) own(dir string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(dir, int(a.credential.Uid), int(a.credential.Gid))
}

// command is a command run by the account in dir, which must be one that the
// account can enter: our own working directory may be none.
func (a *account) command(dir, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(process.WithoutPrefix(process.WithoutPrefix(os.Environ(), "PG"), "LC_"), "LC_ALL=C")
	if a.credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	}
	return cmd
}

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
	"syscall"

	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// StandbyName is the application_name of a standby, as for
// synchronous_standby_names.
const StandbyName = "standby"

// local is a data directory, and the binaries and the user that work on it.
type local struct {
	bin     string
	account *process.Account
	data    string
}

// startLocal runs an installed server on a data directory of its own, which fill fills.
func startLocal(ctx context.Context, cfg *Config, fill func(context.Context, *local) error) (*Server, error) {
	bin, version, err := FindBinaries(ctx)
	if err != nil {
		return nil, err
	}
	account, err := process.ServerAccount()
	if err != nil {
		return nil, err
	}
	p, err := newServer()
	if err != nil {
		return nil, err
	}
	p.local = local{bin, account, p.Dir().Path("data")}
	if err := errors.Join(account.Mkdir(p.data), fill(ctx, &p.local)); err != nil {
		return nil, errors.Join(err, p.Stop(ctx))
	}
	arguments := []string{"-D", p.data, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-p", strconv.Itoa(p.Port(0))}
	arguments = append(arguments, cfg.arguments()...)
	err = p.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			return account.Command(p.data, filepath.Join(bin, "postgres"), arguments...), nil
		},
		Ready:       p.ping,
		StopSignals: []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT},
		KillSignals: []syscall.Signal{syscall.SIGQUIT},
	})
	if err != nil {
		return nil, err
	}
	p.Announce("Postgres", fmt.Sprintf("local %s (%s)", bin, version))
	return p, nil
}

func (l *local) tool(name string, args ...string) error {
	cmd := l.account.Command(l.data, filepath.Join(l.bin, name), args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testenv: %s as %s: %w\n%s", name, l.account, err, out)
	}
	return nil
}

// emptyCluster has an empty data directory. Servers start on copies: initdb takes ten times as long. So the
// servers of one process have the same system identifier. It doesn't sync: nothing in it is worth a crash of the
// machine.
var emptyCluster = process.Shared(func(ctx context.Context) (*process.Dir, error) {
	bin, _, err := FindBinaries(ctx)
	if err != nil {
		return nil, err
	}
	account, err := process.ServerAccount()
	if err != nil {
		return nil, err
	}
	dir, err := process.NewDir()
	if err != nil {
		return nil, err
	}
	l := &local{bin, account, dir.Path("data")}
	err = errors.Join(account.Mkdir(l.data),
		l.tool("initdb", "-D", l.data, "-U", "postgres", "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C"))
	if err != nil {
		return nil, errors.Join(err, dir.Stop(ctx))
	}
	return dir, nil
})

func copyEmptyCluster(ctx context.Context, l *local) error {
	dir, err := emptyCluster()
	if err != nil {
		return err
	}
	return replace(ctx, l.data, dir.Path("data"))
}

// replace puts a copy of a directory in the place of another.
func replace(ctx context.Context, dir, by string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", by, dir).CombinedOutput(); err != nil {
		return fmt.Errorf("testenv: cp -a %s %s: %w: %s", by, dir, err, out)
	}
	return nil
}

// CopyData stops the server orderly, copies its data and starts it again. The copy goes with the server.
func (p *Server) CopyData(ctx context.Context) (dir string, err error) {
	dir = p.Dir().Path(fmt.Sprintf("copy-%016x", rand.Uint64()))
	return dir, p.WhileStopped(ctx, func() error { return replace(ctx, dir, p.data) })
}

// PutBack stops the server orderly, puts a copy of its data in the place of the present one and starts it
// again.
func (p *Server) PutBack(ctx context.Context, dir string) error {
	return p.WhileStopped(ctx, func() error { return replace(ctx, p.data, dir) })
}

// StartStandby starts a standby that streams from primary, which was started with Config.Local, and returns
// once it answers queries; it must be stopped by Stop. It follows asynchronously unless primary's settings
// say otherwise.
func StartStandby(ctx context.Context, primary *Server, cfg *Config) (*Server, error) {
	return startLocal(ctx, cfg, func(_ context.Context, l *local) error {
		return l.baseBackup(primary, "--write-recovery-conf")
	})
}

func (l *local) baseBackup(of *Server, args ...string) error {
	from := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", of.Port(0), StandbyName)
	return l.tool("pg_basebackup", append(args, "-D", l.data, "-d", from, "--checkpoint=fast", "--no-sync")...)
}

// AwaitStandby makes each commit of a primary wait for its standby from now on.
func (p *Server) AwaitStandby(ctx context.Context) error {
	if err := p.set(ctx, "synchronous_standby_names", StandbyName); err != nil {
		return err
	}
	// Commits heed the setting once the checkpointer has read it, which a checkpoint does that is asked
	// for after the postmaster has told its processes, and so after a new session has it.
	return process.Poll(ctx, func(ctx context.Context) error {
		return p.exec(ctx, unless("current_setting('synchronous_standby_names') = ''")+"; checkpoint; "+
			unless("not exists (select from pg_stat_replication where sync_state = 'sync')"))
	})
}

// StopStreaming cuts a standby off from its primary and returns once it receives nothing more.
func (p *Server) StopStreaming(ctx context.Context) error {
	if err := p.set(ctx, "primary_conninfo", ""); err != nil {
		return err
	}
	return process.Poll(ctx, func(ctx context.Context) error {
		return p.exec(ctx, unless("exists (select from pg_stat_wal_receiver)"))
	})
}

// Promote makes a standby a primary, on the next timeline, and returns once it
// takes writes.
func (p *Server) Promote(ctx context.Context) error { return p.exec(ctx, unless("not pg_promote()")) }

// unless is a statement that fails if a condition holds.
func unless(condition string) string {
	return "do $$ begin if " + condition + " then raise $m$" + condition + "$m$; end if; end $$"
}

// Archive has the server, started with archive_mode=on, keep its write-ahead log in a directory beside its
// data, from now on, for RecoverTo.
func (p *Server) Archive(ctx context.Context) error {
	if err := p.account.Mkdir(p.archive()); err != nil {
		return err
	}
	return p.set(ctx, "archive_command", `cp %p "`+p.archive()+`/%f"`)
}

func (p *Server) archive() string { return p.Dir().Path("archive") }

// BaseBackup copies the data of the running server, as pg_basebackup does.
func (p *Server) BaseBackup(context.Context) (dir string, err error) {
	l := &local{p.bin, p.account, p.Dir().Path("base")}
	return l.data, errors.Join(p.account.Mkdir(l.data), l.baseBackup(p))
}

// RecoverTo stops the server orderly, puts a base backup in the place of its data, and starts it again with
// the settings of a recovery, and a restore_command that reads what Archive has kept. It returns once the
// server takes writes, so recovery_target_action has to be promote.
func (p *Server) RecoverTo(ctx context.Context, base, settings string) error {
	err := p.WhileStopped(ctx, func() error {
		if err := replace(ctx, p.data, base); err != nil {
			return err
		}
		conf, err := os.OpenFile(filepath.Join(p.data, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(conf, "\nrestore_command = 'cp \"%s/%%f\" \"%%p\"'\n%s\n", p.archive(), settings)
		return errors.Join(err, conf.Close(), p.account.WriteFile(p.data, "recovery.signal", nil))
	})
	if err != nil {
		return err
	}
	return process.Poll(ctx, func(ctx context.Context) error { return p.exec(ctx, unless("pg_is_in_recovery()")) })
}

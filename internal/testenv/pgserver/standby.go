package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// StandbyName is the application_name of a standby, as for
// synchronous_standby_names.
const StandbyName = "standby"

// StartStandby starts a standby that streams from primary, which was started with Config.Local, and returns
// once it answers queries; it must be stopped by Stop. It follows asynchronously unless primary's settings
// say otherwise.
func StartStandby(ctx context.Context, primary *Server, cfg *Config) (*Server, error) {
	c := *cmp.Or(cfg, &Config{})
	if primary.local == nil {
		return nil, errNotLocal
	}
	return startLocal(ctx, primary.local.bin, c, func(ctx context.Context, l *local) error {
		from := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", primary.local.Port(0), StandbyName)
		return l.tool(ctx, "pg_basebackup", "-D", l.data, "-d", from, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	})
}

// AwaitStandby makes each commit of a primary wait for its standby from now on.
func (p *Server) AwaitStandby(ctx context.Context) error {
	for _, sql := range []string{"alter system set synchronous_standby_names = '" + StandbyName + "'", "select pg_reload_conf()"} {
		if err := p.exec(ctx, sql); err != nil {
			return err
		}
	}
	// Commits heed the setting once the checkpointer has read it, which a checkpoint does that is asked
	// for after the postmaster has told its processes, and so after a new session has it.
	return process.Poll(ctx, func(ctx context.Context) error {
		return p.exec(ctx, "do $$ begin if current_setting('synchronous_standby_names') = '' then raise 'not read yet'; end if; end $$; "+
			"checkpoint; "+
			"do $$ begin if not exists (select from pg_stat_replication where sync_state = 'sync') then raise 'not synchronous yet'; end if; end $$")
	})
}

// StopStreaming cuts a standby off from its primary and returns once it receives nothing more.
func (p *Server) StopStreaming(ctx context.Context) error {
	for _, sql := range []string{"alter system set primary_conninfo = ''", "select pg_reload_conf()"} {
		if err := p.exec(ctx, sql); err != nil {
			return err
		}
	}
	return process.Poll(ctx, func(ctx context.Context) error {
		return p.exec(ctx, "do $$ begin if exists (select from pg_stat_wal_receiver) then raise 'it still receives'; end if; end $$")
	})
}

// Promote makes a standby a primary, on the next timeline, and returns once it
// takes writes.
func (p *Server) Promote(ctx context.Context) error {
	return p.exec(ctx, "do $$ begin if not pg_promote() then raise 'not promoted'; end if; end $$")
}

// Archive has the server, started with archive_mode=on, keep its write-ahead log in a directory beside its
// data, from now on, for RecoverTo.
func (p *Server) Archive(ctx context.Context) error {
	if p.local == nil {
		return errNotLocal
	}
	archive := p.local.archive()
	if err := p.local.account.Mkdir(archive); err != nil {
		return err
	}
	if err := p.exec(ctx, fmt.Sprintf("alter system set archive_command = 'cp %%p \"%s/%%f\"'", archive)); err != nil {
		return err
	}
	return p.exec(ctx, "select pg_reload_conf()")
}

func (l *local) archive() string { return l.Dir().Path("archive") }

// BaseBackup copies the data of the running server, as pg_basebackup does.
func (p *Server) BaseBackup(ctx context.Context) (*Volume, error) {
	if p.local == nil {
		return nil, errNotLocal
	}
	v := &Volume{p.local, p.local.Dir().Path("base")}
	if err := p.local.account.Mkdir(v.dir); err != nil {
		return nil, err
	}
	from := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres", p.local.Port(0))
	return v, p.local.tool(ctx, "pg_basebackup", "-D", v.dir, "-d", from, "--checkpoint=fast", "--no-sync")
}

// RecoverTo stops the server orderly, puts a base backup in the place of its data, and starts it again with
// the settings of a recovery, and a restore_command that reads what Archive has kept. It returns once the
// server takes writes, so recovery_target_action has to be promote.
func (p *Server) RecoverTo(ctx context.Context, base *Volume, settings string) error {
	err := p.putBack(ctx, base, func() error { return p.local.recover(settings) })
	if err != nil {
		return err
	}
	return process.Poll(ctx, func(ctx context.Context) error {
		return p.exec(ctx, "do $$ begin if pg_is_in_recovery() then raise 'it still recovers'; end if; end $$")
	})
}

// recover has the next start recover from the archive.
func (l *local) recover(settings string) error {
	conf, err := os.OpenFile(filepath.Join(l.data, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(conf, "\nrestore_command = 'cp \"%s/%%f\" \"%%p\"'\n%s\n", l.archive(), settings)
	signal := filepath.Join(l.data, "recovery.signal")
	return errors.Join(err, conf.Close(), os.WriteFile(signal, nil, 0o600), l.account.Own(signal))
}

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Archive has the server keep its write-ahead log in a directory beside its data, from now on,
// for RecoverTo. The server must have been started with the setting archive_mode=on.
func (p *Server) Archive(ctx context.Context) error {
	if p.local == nil {
		return errNotLocal
	}
	archive := p.local.archive()
	if err := os.Mkdir(archive, 0o700); err != nil {
		return err
	}
	if err := p.local.account.Own(archive); err != nil {
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
	if err := os.Mkdir(v.dir, 0o700); err != nil {
		return nil, err
	}
	if err := p.local.account.Own(v.dir); err != nil {
		return nil, err
	}
	from := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres", p.local.Port(0))
	return v, p.local.tool(ctx, "pg_basebackup", "-D", v.dir, "-d", from, "--checkpoint=fast", "--no-sync")
}

// RecoverTo stops the server orderly, puts a base backup in the place of its data, and starts it
// again with the settings of a recovery, such as recovery_target_name, and a restore_command that
// reads what Archive has kept. It returns once the server takes writes, on the next timeline, so
// recovery_target_action has to be promote.
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

package fencectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
)

func newAudit() *cobra.Command {
	d := &databaseFlags{timeout: time.Hour}
	return connected(d, newCommand("audit", nil), newAuditVerify(d), newAuditExport(d), newAuditAnchor(d), newAuditKeygen())
}

func newAuditExport(d *databaseFlags) *cobra.Command {
	var path, resources string
	cmd := newCommand("audit export", func(cmd *cobra.Command, _ []string) error {
		if path == "-" {
			_, err := d.export(cmd.Context(), cmd.OutOrStdout(), resources)
			return err
		}
		done, err := d.exportTo(cmd.Context(), path, resources)
		if err != nil {
			return err
		}
		return cli.WriteOne(cmd, done)
	})
	cmd.Flags().StringVar(&path, "out", "-", "the file to write; - is stdout")
	cmd.Flags().StringVar(&resources, "resource", "", "only resources that match this, with * and ?")
	return cmd
}

func (d *databaseFlags) export(ctx context.Context, w io.Writer, resources string) (audit.Exported, error) {
	done, err := ask(ctx, d, func(ctx context.Context, db *session) (audit.Exported, error) {
		return db.history.Export(ctx, w, resources)
	})
	if err == nil && done.Resources == 0 && resources != "" {
		err = fmt.Errorf("no resource%s", matching(resources))
	}
	return done, err
}

// exportTo writes a file under another name, and gives it its own when it is durable.
func (d *databaseFlags) exportTo(ctx context.Context, path, resources string) (done audit.Exported, err error) {
	if _, err := os.Lstat(path); err == nil {
		return done, cli.UsageErrorf("--out: %s exists, and is never overwritten: give another name, or remove it", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return done, cli.UsageErrorf("--out: %w", err)
	}
	defer os.Remove(file.Name())
	done, err = d.export(ctx, file, resources)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return done, err
	}
	// Unlike a rename, a link fails if the name has been taken meanwhile.
	if err := os.Link(file.Name(), path); err != nil {
		return done, fmt.Errorf("--out: %w", err)
	}
	return done, syncDirectory(filepath.Dir(path))
}

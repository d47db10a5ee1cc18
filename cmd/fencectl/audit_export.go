package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
)

func newAuditExport(d *databaseFlags, out *cli.Output) *cobra.Command {
	var path, resources string
	cmd := &cobra.Command{
		Use:   "export [flags]",
		Short: "Write the history to a file that verifies without the database",
		Long: `Write a snapshot of the history as JSON lines, without blocking writers, with
the fences, checkpoints, holds, rejections and kept operations (but not their
results) that "audit verify --export" needs. The reader role is enough.

The file appears under its name when it is whole and durable. A file that is
there already is not overwritten. The exit code is 2 if no resource matches.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "-" {
				_, err := d.export(cmd.Context(), cmd.OutOrStdout(), resources)
				return err
			}
			done, err := d.exportTo(cmd.Context(), path, resources)
			if err != nil {
				return err
			}
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, exported(done))
		},
	}
	cmd.Flags().StringVar(&path, "out", "-", "the file to write; - is stdout")
	cmd.Flags().StringVar(&resources, "resource", "", "only resources that match this, with * and ?")
	return cmd
}

func (d *databaseFlags) export(ctx context.Context, w io.Writer, resources string) (done audit.Exported, err error) {
	err = d.withHistory(ctx, func(ctx context.Context, _ *pgxpool.Pool, history *audit.Database) (err error) {
		done, err = history.Export(ctx, w, resources)
		return err
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

// exported is what "audit export" prints of a file.
type exported audit.Exported

func (exported) Columns() []string { return []string{"resources", "entries"} }
func (e exported) Cells() []string {
	return []string{strconv.FormatInt(e.Resources, 10), strconv.FormatInt(e.Entries, 10)}
}

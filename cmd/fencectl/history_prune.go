package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newHistoryPrune(d *databaseFlags, out *cli.Output) *cobra.Command {
	var o postgres.PruneOptions
	var export string
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "Delete old entries, rejections and Once keys",
		Long: `Delete old entries of the history (claims, writes and voids), old rejections and
old keys of guard.Once, and print how many were deleted. The command works in
small transactions, which don't block guarded ones.

The policy of the schema's owner ("fencectl history policy") decides what is old
enough. If it sets an age, --keep and --keep-entries can only keep more. If it
sets none (the default), --keep deletes entries and rejections older than its
value, and --keep-entries alone deletes entries older than an hour; the policy's
number of entries per resource is kept in either case.

A prune always keeps the last entry of each resource, the claim of the oldest
remaining entry, claims that running transactions use, entries and rejections
younger than an hour, resources on hold, and histories with missing entries. The
remaining history can still be verified.

Only the policy decides about Once keys. They are deleted only after the
server's clock has run steadily for the policy's --keep-once, which takes a
prune at least four times in that period (every 42 hours by default). With
--resource no Once keys are deleted.

If the command fails or is interrupted, it prints how many were deleted; run it
again to continue. Connect as the owner of the schema.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return historyPrune(cmd, d, out, o, export) },
	}
	cmd.Flags().Var((*age)(&o.Keep), "keep", "keep entries and rejections younger than this, such as 90d, at least 1h; the policy decides about Once keys")
	cmd.Flags().Int64Var(&o.KeepEntries, "keep-entries", 0, "keep this many entries of each resource, at least 1")
	cmd.Flags().StringVar(&o.Resources, "resource", "", "only resources that match this pattern with * and ?")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only count")
	cmd.Flags().StringVar(&export, "export", "", "append each entry to this file, as JSON lines, before it is deleted")
	return cmd
}

// pruned is what "history prune" prints.
type pruned struct {
	Entries    int64 `json:"entries"`
	Rejections int64 `json:"rejections"`
	OnceKeys   int64 `json:"once_keys"`
}

func (pruned) Columns() []string { return []string{"entries", "rejections", "once_keys"} }
func (p pruned) Cells() []string {
	return []string{strconv.FormatInt(p.Entries, 10), strconv.FormatInt(p.Rejections, 10), strconv.FormatInt(p.OnceKeys, 10)}
}

func historyPrune(cmd *cobra.Command, d *databaseFlags, out *cli.Output, o postgres.PruneOptions, export string) error {
	if err := checkPolicy(postgres.Policy{Keep: o.Keep, KeepEntries: o.KeepEntries}, cmd.Flags().Changed("keep-entries")); err != nil {
		return err
	}
	if !utf8.ValidString(o.Resources) {
		return cli.UsageErrorf("--resource is %q, which is not UTF-8", o.Resources)
	}
	if export != "" && !o.DryRun {
		file, err := openExport(export)
		if err != nil {
			return cli.UsageErrorf("--export: %w", err)
		}
		defer file.Close()
		o.Export = file
	}
	var done postgres.Pruned
	failure := d.withHistory(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool, history *audit.Database) (err error) {
		done, err = postgres.Prune(ctx, pool, d.schema, o)
		if err != nil || o.Resources == "" || done.Entries > 0 {
			return err
		}
		some, err := hasFence(ctx, history, audit.Filter{Resources: o.Resources})
		if err == nil && !some {
			fmt.Fprintf(cmd.ErrOrStderr(), "no resource%s\n", matching(o.Resources))
		}
		return err
	})
	if failure == nil || done != (postgres.Pruned{}) {
		failure = errors.Join(failure, cli.WriteOne(cmd.OutOrStdout(), out.Format, pruned(done)))
	}
	return failure
}

// openExport opens a file to append to, so that a crash of the machine leaves it in its
// directory. A line that an earlier run did not finish is ended: its entry was not deleted, and
// is exported again.
func openExport(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(endLine(file), syncDirectory(filepath.Dir(path))); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// endLine appends a newline to a file whose last line has none. What can't be read backwards,
// such as a pipe, is left as it is.
func endLine(file *os.File) error {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = file.WriteString("\n")
	return err
}

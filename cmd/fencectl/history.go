package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newHistory(out *cli.Output) *cobra.Command {
	return newHistoryGroup("history", "Prune the history, or keep it as evidence", out, newHistoryPrune, newHistoryPolicy, newHistoryHold, newHistoryRelease, newHistoryHolds)
}

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

type pruned struct {
	Entries    int64 `json:"entries"`
	Rejections int64 `json:"rejections"`
	OnceKeys   int64 `json:"once_keys"`
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

func newHistoryPolicy(d *databaseFlags, out *cli.Output) *cobra.Command {
	var change postgres.Policy
	var off bool
	cmd := &cobra.Command{
		Use:   "policy [flags]",
		Short: "Show or set the policy that prunes follow",
		Long: `Show the policy that "fencectl history prune" and Store.Prune follow, and how
much they would delete now (only to the owner of the schema). With flags, change
the policy first. The command itself deletes nothing.

A prune may delete an entry that is older than --keep and not among the last
--keep-entries of its resource, and a rejection that is older than --keep. The
number of entries protects the history if the server's clock was set forward. By
default no age is set: then only "fencectl history prune" with --keep or
--keep-entries deletes history. Without flags the reader role is enough; with
flags, connect as the owner of the schema.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if off && change.Keep != 0 {
				return cli.UsageErrorf("--off keeps history forever: give --off or --keep, not both")
			}
			changed := cmd.Flags().Changed
			if err := checkPolicy(change, changed("keep-entries")); err != nil {
				return err
			}
			return historyPolicy(cmd, d, out, func(p *postgres.Policy) (set bool) {
				if off || change.Keep != 0 {
					p.Keep, set = change.Keep, true
				}
				if changed("keep-entries") {
					p.KeepEntries, set = change.KeepEntries, true
				}
				if change.KeepOnce != 0 {
					p.KeepOnce, set = change.KeepOnce, true
				}
				return set
			})
		},
	}
	cmd.Flags().Var((*age)(&change.Keep), "keep", "keep entries and rejections that are younger than this, such as 90d; at least 1h")
	cmd.Flags().Int64Var(&change.KeepEntries, "keep-entries", 0, "keep this many entries of each resource, however old; at least 1")
	cmd.Flags().Var((*age)(&change.KeepOnce), "keep-once", "keep keys of guard.Once that are younger than this; at least 1m")
	cmd.Flags().BoolVar(&off, "off", false, "set no age: no prune deletes history unless its own flags say so")
	return cmd
}

func checkPolicy(p postgres.Policy, entries bool) error {
	switch {
	case p.Keep != 0 && p.Keep < record.MinKeep:
		return cli.UsageErrorf("--keep is %s, want at least %s", written(p.Keep), written(record.MinKeep))
	case p.KeepOnce != 0 && p.KeepOnce < record.MinKeepOnce:
		return cli.UsageErrorf("--keep-once is %s, want at least %s", written(p.KeepOnce), written(record.MinKeepOnce))
	case entries && p.KeepEntries < 1:
		return cli.UsageErrorf("--keep-entries is %d, want at least 1", p.KeepEntries)
	}
	return nil
}

type policy struct {
	Keep        string `json:"keep"` // "" means forever
	KeepEntries int64  `json:"keep_entries"`
	KeepOnce    string `json:"keep_once"`
}

// historyPolicy applies change to the policy and prints it, even if a history has a gap, so that the
// count of what a prune would delete fails. change reports whether it changed the policy.
func historyPolicy(cmd *cobra.Command, d *databaseFlags, out *cli.Output, change func(*postgres.Policy) bool) error {
	var shown *policy // nil if it was neither read nor set
	var notes []string
	failure := d.withHistory(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool, history *audit.Database) error {
		p, err := postgres.ReadPolicy(ctx, pool, d.schema)
		if err != nil {
			return err
		}
		if change(&p) {
			if err = postgres.SetPolicy(ctx, pool, d.schema, p); err != nil {
				return err
			}
		}
		shown = &policy{Keep: written(p.Keep), KeepEntries: p.KeepEntries, KeepOnce: written(p.KeepOnce)}
		notes, err = policyNotes(ctx, pool, history, d.schema)
		return err
	})
	if shown == nil {
		return failure
	}
	for _, note := range notes {
		fmt.Fprintln(cmd.ErrOrStderr(), note)
	}
	return errors.Join(failure, cli.WriteOne(cmd.OutOrStdout(), out.Format, *shown))
}

func policyNotes(ctx context.Context, pool *pgxpool.Pool, history *audit.Database, schema string) ([]string, error) {
	holds, err := readHolds(ctx, history, audit.Filter{})
	if err != nil {
		return nil, err
	}
	prune, err := wouldPrune(ctx, pool, schema)
	if err != nil {
		return nil, err
	}
	if len(holds) == 0 {
		return []string{prune}, nil
	}
	return []string{prune, fmt.Sprintf("%s on hold: see \"fencectl history holds\"", cli.Counted(len(holds), "resource"))}, nil
}

func wouldPrune(ctx context.Context, pool *pgxpool.Pool, schema string) (string, error) {
	would, err := postgres.Prune(ctx, pool, schema, postgres.PruneOptions{DryRun: true})
	if missesRights(err) {
		return "what a prune would delete: only the owner of the schema can ask", nil
	}
	return fmt.Sprintf("\"fencectl history prune\" would now delete %s, %s and %s", cli.Counted(would.Entries, "entry"), cli.Counted(would.Rejections, "rejection"), cli.Counted(would.OnceKeys, "Once key")), err
}

// written formats a duration as the flags take it; 0, which means forever, is "".
func written(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return (*age)(&d).String()
}

func newHistoryHold(d *databaseFlags, out *cli.Output) *cobra.Command {
	var reason string
	var unknown bool
	cmd := &cobra.Command{
		Use:   "hold RESOURCE --reason TEXT [flags]",
		Short: "Keep the history of a resource from being pruned",
		Long: `Keep the history and the rejections of a resource from being pruned, until
"fencectl history release", and print the hold. RESOURCE is an exact name, not a
pattern. A second hold replaces the reason. Connect as the owner of the schema.`,
		Args: cli.OneArg("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return historyHold(cmd, d, out, args[0], reason, unknown)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, at most 1000 bytes; required")
	cmd.Flags().BoolVar(&unknown, "unknown", false, "place the hold even if the resource has no history yet")
	return cmd
}

func historyHold(cmd *cobra.Command, d *databaseFlags, out *cli.Output, resource, reason string, unknown bool) error {
	if reason == "" {
		return cli.UsageErrorf("--reason is required")
	}
	if err := fence.ValidateResource(resource); err != nil {
		return cli.UsageErrorf("%w", err)
	}
	may := unknown
	placed := hold{Resource: resource, Reason: reason}
	err := d.withHistory(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool, db *audit.Database) (err error) {
		if !unknown {
			if may, err = hasFence(ctx, db, audit.Filter{Resource: resource}); err != nil || !may {
				return err
			}
		}
		if err := postgres.HoldHistory(ctx, pool, d.schema, resource, reason); err != nil {
			return err
		}
		rows, err := readHolds(ctx, db, audit.Filter{Resource: resource})
		if len(rows) > 0 {
			placed = rows[0]
		}
		return err
	})
	if err != nil {
		return err
	}
	if !may {
		return cli.UsageErrorf("no resource %q has a history: names are exact here, not patterns; to place the hold nevertheless, add --unknown", resource)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the history of %s is on hold\n", resource)
	return cli.WriteOne(cmd.OutOrStdout(), out.Format, placed)
}

func hasFence(ctx context.Context, db *audit.Database, f audit.Filter) (has bool, err error) {
	for _, err := range db.Fences(ctx, f) {
		return err == nil, err
	}
	return false, nil
}

func newHistoryHolds(d *databaseFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "holds [flags]",
		Short: "Show the resources whose history is on hold",
		Long: `Show the resources whose history is on hold, since when, the role that gave the
reason, and the reason. The reader role is enough.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var holds []hold
			err := d.withHistory(cmd.Context(), func(ctx context.Context, _ *pgxpool.Pool, db *audit.Database) (err error) {
				holds, err = readHolds(ctx, db, audit.Filter{})
				return err
			})
			if err != nil {
				return err
			}
			if len(holds) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no resource is on hold")
			}
			return cli.WriteList(cmd.OutOrStdout(), out.Format, holds)
		},
	}
}

type hold struct {
	Resource string    `json:"resource"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
}

func readHolds(ctx context.Context, db *audit.Database, f audit.Filter) (holds []hold, err error) {
	for h, err := range db.Holds(ctx, f) {
		if err != nil {
			return nil, err
		}
		holds = append(holds, hold{Resource: h.Resource, At: h.At.UTC(), By: h.Role, Reason: h.Reason})
	}
	return holds, nil
}

func newHistoryRelease(d *databaseFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "release RESOURCE [flags]",
		Short: "End a hold",
		Long: `Let the history of a resource be pruned again, and print whether it was on hold.
RESOURCE is an exact name, not a pattern. Connect as the owner of the schema.`,
		Args: cli.OneArg("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := released{Resource: args[0]}
			err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) (err error) {
				r.Released, err = postgres.ReleaseHistory(ctx, pool, d.schema, r.Resource)
				return err
			})
			if err != nil {
				return err
			}
			if r.Released {
				fmt.Fprintf(cmd.ErrOrStderr(), "the history of %s may be pruned again\n", r.Resource)
			} else {
				fmt.Fprintf(cmd.ErrOrStderr(), "nothing to do: the history of %s is not on hold; see \"fencectl history holds\"\n", r.Resource)
			}
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, r)
		},
	}
}

type released struct {
	Resource string `json:"resource"`
	Released bool   `json:"released"`
}

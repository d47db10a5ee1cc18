package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/retention"
	"github.com/fencekit/fencekit/storage/postgres"
)

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

// checkPolicy says which flag is out of bounds.
func checkPolicy(p postgres.Policy, entries bool) error {
	switch {
	case p.Keep != 0 && p.Keep < retention.MinKeep:
		return cli.UsageErrorf("--keep is %s, want at least %s", written(p.Keep), written(retention.MinKeep))
	case p.KeepOnce != 0 && p.KeepOnce < retention.MinKeepOnce:
		return cli.UsageErrorf("--keep-once is %s, want at least %s", written(p.KeepOnce), written(retention.MinKeepOnce))
	case entries && p.KeepEntries < 1:
		return cli.UsageErrorf("--keep-entries is %d, want at least 1", p.KeepEntries)
	}
	return nil
}

// policy is what "history policy" prints.
type policy struct {
	Keep        string `json:"keep"` // "" means forever
	KeepEntries int64  `json:"keep_entries"`
	KeepOnce    string `json:"keep_once"`
}

func (policy) Columns() []string { return []string{"keep", "keep_entries", "keep_once"} }
func (p policy) Cells() []string {
	return []string{p.Keep, strconv.FormatInt(p.KeepEntries, 10), p.KeepOnce}
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

// policyNotes says what a prune would delete now, and how many resources are on hold.
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

package fencectl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newHistory() *cobra.Command {
	d := &databaseFlags{timeout: time.Hour}
	holds := newCommand("history holds", func(cmd *cobra.Command, _ []string) error { return historyHolds(cmd, d) })
	release := newCommand("history release", func(cmd *cobra.Command, args []string) error { return historyRelease(cmd, d, args[0]) })
	return connected(d, newCommand("history", nil), newHistoryPrune(d), newHistoryPolicy(d), newHistoryHold(d), release, holds)
}

func newHistoryPrune(d *databaseFlags) *cobra.Command {
	var o postgres.PruneOptions
	var export string
	cmd := newCommand("history prune", func(cmd *cobra.Command, _ []string) error { return historyPrune(cmd, d, o, export) })
	cmd.Flags().Var((*age)(&o.Keep), "keep", "keep entries and rejections younger than this, such as 90d, at least 1h; the policy decides about Once keys")
	cmd.Flags().Int64Var(&o.KeepEntries, "keep-entries", 0, "keep this many entries of each resource, at least 1")
	cmd.Flags().StringVar(&o.Resources, "resource", "", "only resources that match this pattern with * and ?")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only count")
	cmd.Flags().StringVar(&export, "export", "", "append each entry to this file, as JSON lines, before it is deleted")
	return cmd
}

func historyPrune(cmd *cobra.Command, d *databaseFlags, o postgres.PruneOptions, export string) error {
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
	done, failure := ask(cmd.Context(), d, func(ctx context.Context, db *session) (postgres.Pruned, error) {
		done, err := postgres.Prune(ctx, db.Pool, d.schema, o)
		if err != nil || o.Resources == "" || done.Entries > 0 {
			return done, err
		}
		return done, d.requireKnown(ctx, db, o.Resources, true)
	})
	if failure == nil || done != (postgres.Pruned{}) {
		failure = errors.Join(failure, cli.WriteOne(cmd, done))
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

func newHistoryPolicy(d *databaseFlags) *cobra.Command {
	var change postgres.Policy
	var off bool
	cmd := newCommand("history policy", func(cmd *cobra.Command, _ []string) error {
		changed := cmd.Flags().Changed
		if err := checkPolicy(change, changed("keep-entries")); err != nil {
			return err
		}
		return historyPolicy(cmd, d, func(p *postgres.Policy) (set bool) {
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
	})
	cmd.Flags().Var((*age)(&change.Keep), "keep", "keep entries and rejections that are younger than this, such as 90d; at least 1h")
	cmd.Flags().Int64Var(&change.KeepEntries, "keep-entries", 0, "keep this many entries of each resource, however old; at least 1")
	cmd.Flags().Var((*age)(&change.KeepOnce), "keep-once", "keep keys of guard.Once that are younger than this; at least 1m")
	cmd.Flags().BoolVar(&off, "off", false, "set no age: no prune deletes history unless its own flags say so")
	cmd.MarkFlagsMutuallyExclusive("off", "keep")
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

// written formats a duration as the flags take it; 0, which means forever, is "".
func written(d time.Duration) string { return (*age)(&d).String() }

type policy struct {
	Keep        string `json:"keep"` // "" means forever
	KeepEntries int64  `json:"keep_entries"`
	KeepOnce    string `json:"keep_once"`
}

// historyPolicy applies change to the policy, which reports whether it did, and prints it.
func historyPolicy(cmd *cobra.Command, d *databaseFlags, change func(*postgres.Policy) bool) error {
	p, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) (p postgres.Policy, err error) {
		p, err = postgres.ReadPolicy(ctx, db.Pool, d.schema)
		if err == nil && change(&p) {
			err = postgres.SetPolicy(ctx, db.Pool, d.schema, p)
		}
		return p, err
	})
	if err != nil {
		return err
	}
	return cli.WriteOne(cmd, policy{written(p.Keep), p.KeepEntries, written(p.KeepOnce)})
}

func newHistoryHold(d *databaseFlags) *cobra.Command {
	var reason string
	var unknown bool
	cmd := newCommand("history hold", func(cmd *cobra.Command, args []string) error {
		return historyHold(cmd, d, args[0], reason, unknown)
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, at most 1000 bytes; required")
	cmd.Flags().BoolVar(&unknown, "unknown", false, "place the hold even if the database doesn't know the resource yet")
	requireFlags(cmd, "reason")
	return cmd
}

func historyHold(cmd *cobra.Command, d *databaseFlags, resource, reason string, unknown bool) error {
	holds, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) (_ []hold, err error) {
		if !unknown {
			err = d.requireKnown(ctx, db, resource, false)
		}
		if err == nil {
			err = postgres.HoldHistory(ctx, db.Pool, d.schema, resource, reason)
		}
		if err != nil {
			return nil, err
		}
		return readHolds(ctx, db.history)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the history of %s is on hold\n", resource)
	placed := hold{Resource: resource, Reason: reason} // unless it was released meanwhile
	if i := slices.IndexFunc(holds, func(h hold) bool { return h.Resource == resource }); i >= 0 {
		placed = holds[i]
	}
	return cli.WriteOne(cmd, placed)
}

type hold struct {
	Resource string    `json:"resource"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
}

func readHolds(ctx context.Context, db *audit.Database) (holds []hold, err error) {
	all, err := db.Holds(ctx)
	for _, h := range all {
		holds = append(holds, hold{Resource: h.Resource, At: h.At.UTC(), By: h.Role, Reason: h.Reason})
	}
	return holds, err
}

func historyHolds(cmd *cobra.Command, d *databaseFlags) error {
	holds, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) ([]hold, error) {
		return readHolds(ctx, db.history)
	})
	if err != nil {
		return err
	}
	if len(holds) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no resource is on hold")
	}
	return cli.Write(cmd, holds)
}

func historyRelease(cmd *cobra.Command, d *databaseFlags, resource string) error {
	type released struct {
		Resource string `json:"resource"`
		Released bool   `json:"released"`
	}
	done, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) (bool, error) {
		done, err := postgres.ReleaseHistory(ctx, db.Pool, d.schema, resource)
		if err == nil && !done {
			err = d.requireKnown(ctx, db, resource, false)
		}
		return done, err
	})
	if err != nil {
		return err
	}
	said := "the history of %s may be pruned again\n"
	if !done {
		said = "nothing to do: the history of %s is not on hold; see \"fencectl history holds\"\n"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), said, resource)
	return cli.WriteOne(cmd, released{resource, done})
}

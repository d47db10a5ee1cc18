package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
)

func newAuditVerify(d *databaseFlags, out *cli.Output) *cobra.Command {
	a := &auditVerify{database: d, out: out}
	cmd := &cobra.Command{
		Use:   "verify [flags]",
		Short: "Verify that the history is as Fencekit wrote it",
		Long: `Verify one snapshot of the history in a database, without blocking writers, or
verify exports without a database: hashes, positions, claims, fences,
checkpoints and kept operations. Each finding is something that Fencekit alone
never causes (exit code 1). The reader role is enough.

Records of rejections that name a claim which isn't in the history are listed as
well. They decide nothing: the claim may have been pruned, or lost in a failover
or a restore, and any application may add such a record, without a hash.

The owner of the tables could rewrite the whole history consistently. To detect
that, compare it with the heads that "audit anchor" recorded: pass the log, or a
copy of it, with --log, and checkpoints that were kept out of the owner's reach
with --checkpoint. Without the log, pass proofs from "audit prove" with --proof.

The exit code is 2 if there is nothing to verify, or if the last recorded head
of a resource can no longer be compared because the entries were pruned.

Findings go to stdout. With -o json they are part of a report that also counts
what was verified. For what this proves, and what it doesn't, see
docs/audit.md.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&a.what.Resources, "resource", "", "only resources that match this, with * and ?")
	flags.StringArrayVar(&a.exports, "export", nil, "verify this export instead of a database; - is stdin; may be given again, in any order")
	a.known.register(flags)
	flags.IntVar(&a.what.Connections, "connections", 2, "how many connections read at the same time, beside one that plans")
	flags.IntVar(&a.what.MaxFindings, "max-findings", 1000, "print at most so many findings")
	return cmd
}

// auditVerify is one "audit verify".
type auditVerify struct {
	database *databaseFlags
	out      *cli.Output
	what     audit.VerifyOptions
	exports  []string
	known    knownFlags
}

func (a *auditVerify) run(cmd *cobra.Command) error {
	if a.what.Connections < 1 || a.what.MaxFindings < 1 {
		return cli.UsageErrorf("--connections and --max-findings have to be at least 1")
	}
	known, err := a.known.heads()
	if err != nil {
		return err
	}
	a.what.Known = known
	if n := len(a.known.checkpoints); n > 1 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d checkpoints agree: the log was only appended to between them\n", n)
	}
	progress := newEntryProgress(cmd.ErrOrStderr())
	a.what.Progress = progress.update
	report, err := a.verify(cmd)
	progress.close()
	if err != nil {
		return err
	}
	if err := a.write(cmd.OutOrStdout(), report); err != nil {
		return err
	}
	if report.Resources == 0 && report.TotalFindings == 0 {
		return a.nothing(report)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), verified(report))
	switch {
	case report.TotalFindings > 0:
		return &cli.ExitError{Code: cli.ExitViolated, Err: fmt.Errorf("the history is not as Fencekit wrote it: %s", cli.Counted(report.TotalFindings, "finding"))}
	case len(report.Unproven) > 0:
		return &cli.ExitError{Code: cli.ExitInconclusive, Err: unproven(report.Unproven)}
	}
	return nil
}

// nothing says why there is nothing to verify. Of a prune, an export has entries but no fences.
func (a *auditVerify) nothing(r audit.Report) error {
	switch files := strings.Join(a.exports, ", "); {
	case r.Entries > 0:
		return fmt.Errorf("no more than the export of a prune: %s; give the export of the database too", files)
	case r.At.IsZero():
		return fmt.Errorf("%s is empty", files)
	}
	return fmt.Errorf("there is nothing to verify: no resource%s", matching(a.what.Resources))
}

// unproven says of which resources no anchored head proves the history that is there.
func unproven(names []string) error {
	first := names[:min(len(names), unprovenShown)]
	return fmt.Errorf("the entries of the last anchored heads of %s were pruned, such as %q: nothing proves their remaining entries\n"+
		"verify exports of the database and of its prunes instead (--export), and anchor more often than history_keep", cli.Counted(len(names), "resource"), first)
}

// unprovenShown bounds the names in a message.
const unprovenShown = 5

func matching(pattern string) string {
	if pattern == "" {
		return ""
	}
	return " matches " + strconv.Quote(pattern)
}

func (a *auditVerify) verify(cmd *cobra.Command) (report audit.Report, err error) {
	if len(a.exports) > 0 {
		return a.verifyExports(cmd.Context(), cmd.InOrStdin())
	}
	err = a.database.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		history, err := audit.Open(pool, a.database.schema)
		if err != nil {
			return err
		}
		report, err = history.Verify(ctx, a.what)
		return err
	})
	return report, err
}

func (a *auditVerify) verifyExports(ctx context.Context, stdin io.Reader) (audit.Report, error) {
	var readers []io.Reader
	for _, path := range a.exports {
		if path == "-" {
			readers = append(readers, stdin)
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			return audit.Report{}, cli.UsageErrorf("--export: %w", err)
		}
		defer file.Close()
		readers = append(readers, file)
	}
	return audit.VerifyExports(ctx, a.what, readers...)
}

func (a *auditVerify) write(w io.Writer, r audit.Report) error {
	if a.out.Format == cli.FormatJSON {
		return cli.WriteOne(w, a.out.Format, wholeReport{r})
	}
	var rows []finding
	for _, f := range slices.Concat(r.Findings, r.Unexplained) {
		rows = append(rows, finding{f})
	}
	return cli.WriteList(w, a.out.Format, rows)
}

// wholeReport is a Report as JSON; other formats have its findings.
type wholeReport struct{ audit.Report }

func (wholeReport) Columns() []string { return nil }
func (wholeReport) Cells() []string   { return nil }

// finding is a row of "audit verify".
type finding struct{ audit.Finding }

func (finding) Columns() []string {
	return []string{"kind", "resource", "position", "text", "expected", "found"}
}

func (f finding) Cells() []string {
	position := ""
	if f.Seq != 0 {
		position = strconv.FormatInt(f.Seq, 10)
	}
	return []string{string(f.Kind), f.Resource, position, f.Text, f.Expected, f.Found}
}

// provable lists what a history proves, or can't prove any more.
func provable(operations, heads int64) string {
	return cli.Counted(operations, "kept operation") + ", " + cli.Counted(heads, "anchored head")
}

// verified says what was verified.
func verified(r audit.Report) string {
	text := fmt.Sprintf("verified %s of %s, ", cli.Counted(r.Entries, "entry"), cli.Counted(r.Resources, "resource")) + provable(r.Operations, r.Heads)
	if !r.At.IsZero() {
		text += ", as of " + r.At.UTC().Format("2006-01-02 15:04:05Z")
	}
	if u := r.Unprovable; u != (audit.Unprovable{}) {
		text += "; no longer provable, since pruned: " + provable(u.Operations, u.Heads)
	}
	if n := r.TotalUnexplained; n > 0 {
		text += fmt.Sprintf("; %d of %s name a claim that isn't in the history", n, cli.Counted(r.Rejections, "record")+" of rejections")
	}
	switch r.LeftOut {
	case 0:
	case 1:
		text += "; 1 anchored head is of a resource that the export leaves out"
	default:
		text += fmt.Sprintf("; %d anchored heads are of resources that the export leaves out", r.LeftOut)
	}
	return text
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/review"
)

func newAuditReport(d *databaseFlags, out *cli.Output) *cobra.Command {
	var p review.Period
	var html string
	var since, until instant
	cmd := &cobra.Command{
		Use:   "report --since TIME --until TIME [flags]",
		Short: "Say whether anything was written without the lock in a period",
		Long: `Answer for a period: was anything written by a holder that no longer held the
lock, or without a guard? And show who held what: rejected attempts, grants and
hand-overs, who held a resource longest (the tenures), and unknown outcomes that
were ruled out.

Only protected tables ("fencectl protect") show writes without a guard: those of
the period are counted. Tables that were not protected all the time are named: a
write to one of these may have left no trace.

The whole history of the resources is verified for it, as by "audit verify". The
exit code is 0 if nothing is wrong, 1 if there were writes without a guard or
the verification finds something, and 2 if there is no answer: entries of the
period may have been pruned, the period has not begun or lies before the record,
or no resource matches. A period that has begun and not ended is answered up to
now; the exit code is 0, and the verdict of -o json is "clean so far" instead of
"clean".

The report lists the 10 longest tenures and, of everything else, the first 20
(the first 1,000 with -o json, jsonl or csv). The reader role is enough.

` + instantHelp,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.From, p.To = time.Time(since), time.Time(until)
			switch {
			case p.From.IsZero() || p.To.IsZero():
				return cli.UsageErrorf("report needs --since and --until")
			case !p.From.Before(p.To):
				return cli.UsageErrorf("--until is %v, want it after --since, %v", &until, &since)
			}
			return auditReport(cmd, d, out, p, html)
		},
	}
	cmd.Flags().Var(&since, "since", "not before this time")
	cmd.Flags().Var(&until, "until", "before this time")
	cmd.Flags().StringVar(&p.Resources, "resource", "*", "only resources that match this, with * and ?")
	cmd.Flags().StringVar(&html, "html", "", "also write the report to this file, as HTML")
	return cmd
}

func auditReport(cmd *cobra.Command, d *databaseFlags, out *cli.Output, p review.Period, html string) error {
	var report *review.Report
	err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		reader, err := review.NewReader(pool, d.schema)
		if err == nil {
			report, err = reader.Report(ctx, p)
		}
		return err
	})
	if err == nil && html != "" {
		err = writePage(html, report.HTML)
	}
	if err == nil {
		err = writeReport(cmd, out.Format, report)
	}
	if err != nil {
		return err
	}
	switch report.Verdict {
	case review.VerdictViolated:
		return &cli.ExitError{Code: cli.ExitViolated, Err: errors.New("the history doesn't verify")}
	case review.VerdictUnguarded:
		return &cli.ExitError{Code: cli.ExitViolated, Err: fmt.Errorf("%s without a guard: \"fencectl protected --writes\" shows them", cli.Counted(report.Counts.Unguarded, "write"))}
	case review.VerdictIncomplete:
		return &cli.ExitError{Code: cli.ExitInconclusive, Err: errors.New(report.Lacks())}
	}
	return nil
}

func writeReport(cmd *cobra.Command, format cli.Format, report *review.Report) error {
	w := cmd.OutOrStdout()
	switch format {
	case cli.FormatTable:
		return report.Text(w, cmp.Or(cli.TerminalWidth(w), cli.UsualWidth))
	case cli.FormatJSON:
		return cli.WriteOne(w, format, report)
	}
	return cli.WriteList(w, format, report.Rows())
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/review"
)

func newAudit(out *cli.Output) *cobra.Command {
	cmd := newHistoryGroup("audit", "Verify, explain and anchor the history", out, newAuditVerify, newAuditExport, newAuditWhy, newAuditReport, newAuditAnchor)
	cmd.AddCommand(newAuditKeygen(out), newAuditProve(out))
	return cmd
}

func newHistoryGroup(name, short string, out *cli.Output, commands ...func(*databaseFlags, *cli.Output) *cobra.Command) *cobra.Command {
	d := &databaseFlags{}
	cmd := cli.NewGroup(name, short)
	d.register(cmd.PersistentFlags(), time.Hour)
	cmd.PersistentPreRunE = d.prepare
	for _, command := range commands {
		cmd.AddCommand(command(d, out))
	}
	return cmd
}

func (d *databaseFlags) withHistory(ctx context.Context, do func(context.Context, *pgxpool.Pool, *audit.Database) error) error {
	return d.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		history, err := audit.Open(pool, d.schema)
		if err != nil {
			return err
		}
		return do(ctx, pool, history)
	})
}

func matching(pattern string) string {
	if pattern == "" {
		return ""
	}
	return " matches " + strconv.Quote(pattern)
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

type reviewed interface {
	Text(w io.Writer, width int) error
	HTML(w io.Writer) error
}

// ask asks a review of the history, and writes the answer: also as HTML, unless html is "".
func ask[R reviewed](cmd *cobra.Command, d *databaseFlags, out *cli.Output, html string, question func(context.Context, *review.Reader) (R, error)) (answer R, err error) {
	err = d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		reader, err := review.NewReader(pool, d.schema)
		if err == nil {
			answer, err = question(ctx, reader)
		}
		return err
	})
	if err != nil {
		return answer, err
	}
	if html != "" {
		var b bytes.Buffer
		err := answer.HTML(&b)
		if err == nil {
			err = os.WriteFile(html, b.Bytes(), 0o644)
		}
		if err != nil {
			return answer, fmt.Errorf("can't write the page (--html): %w", err)
		}
	}
	w := cmd.OutOrStdout()
	report, ok := any(answer).(*review.Report)
	switch {
	case out.Format == cli.FormatTable:
		err = answer.Text(w, cmp.Or(cli.TerminalWidth(w), cli.UsualWidth))
	case ok && out.Format.Streams():
		var rows []review.Row
		if rows, err = report.Rows(); err == nil {
			err = cli.WriteList(w, out.Format, rows)
		}
	default:
		err = cli.WriteOne(w, out.Format, answer)
	}
	return answer, err
}

func newAuditWhy(d *databaseFlags, out *cli.Output) *cobra.Command {
	var q review.Question
	var html string
	cmd := &cobra.Command{
		Use:   "why RESOURCE [flags]",
		Short: "Explain a rejection or an operation in plain words",
		Long: `Explain on one page why a holder was rejected, or whether an operation took
effect. The page names the rejected holder, the holder that had the resource and
since when, the attempted step and its effect, and the entries of the history
before and after.

Without flags, explain the latest rejection of the resource. RESOURCE is an
exact name, not a pattern. If there is no record, the page says so, and whether
pruning may have removed it; the exit code is 2. Connect as the schema's owner
or in its reader role.`,
		Args: cli.OneArg("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Resource = args[0]
			if err := validateQuestion(cmd, q); err != nil {
				return err
			}
			x, err := ask(cmd, d, out, html, func(ctx context.Context, r *review.Reader) (*review.Explanation, error) { return r.Why(ctx, q) })
			if err == nil && x.Rejection == nil && x.Entry == nil {
				err = &cli.ExitError{Code: cli.ExitInconclusive, Err: errors.New("there is no record")}
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.Int64Var(&q.Rejection, "rejection", 0, "explain the rejection with this number")
	flags.Int64Var((*int64)(&q.Token), "token", 0, "explain the latest rejection of this token, or what else became of it")
	flags.StringVar(&q.OpID, "op-id", "", "explain what became of the operation with this id (guard.OpID)")
	flags.Int64Var(&q.Position, "position", 0, "explain the entry at this position")
	flags.StringVar(&html, "html", "", "also write the page to this file, as HTML")
	return cmd
}

func validateQuestion(cmd *cobra.Command, q review.Question) error {
	if q.Resource == "" {
		return cli.UsageErrorf("RESOURCE is empty, want a name")
	}
	var given []*pflag.Flag
	for _, name := range []string{"rejection", "token", "op-id", "position"} {
		if f := cmd.Flag(name); f.Changed {
			given = append(given, f)
		}
	}
	switch {
	case len(given) > 1:
		return cli.UsageErrorf("want one of --rejection, --token, --op-id and --position")
	case len(given) == 1 && (q == review.Question{Resource: q.Resource} || min(q.Rejection, int64(q.Token), q.Position) < 0):
		return cli.UsageErrorf("--%s is %q, want an id, or a number from 1", given[0].Name, given[0].Value)
	}
	return nil
}

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
			report, err := ask(cmd, d, out, html, func(ctx context.Context, r *review.Reader) (*review.Report, error) { return r.Report(ctx, p) })
			if err != nil {
				return err
			}
			switch report.Verdict {
			case review.VerdictViolated:
				return &cli.ExitError{Code: cli.ExitViolated, Err: errors.New("the history doesn't verify")}
			case review.VerdictUnguarded:
				return &cli.ExitError{Code: cli.ExitViolated, Err: fmt.Errorf("%s without a guard: \"fencectl protected --writes\" shows them", cli.Counted(report.Counts.Unguarded, "write"))}
			case review.VerdictIncomplete:
				return &cli.ExitError{Code: cli.ExitInconclusive, Err: errors.New(report.Lacks)}
			}
			return nil
		},
	}
	cmd.Flags().Var(&since, "since", "not before this time")
	cmd.Flags().Var(&until, "until", "before this time")
	cmd.Flags().StringVar(&p.Resources, "resource", "*", "only resources that match this, with * and ?")
	cmd.Flags().StringVar(&html, "html", "", "also write the report to this file, as HTML")
	return cmd
}

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
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, done)
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

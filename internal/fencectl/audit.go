package fencectl

import (
	"cmp"
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
	"github.com/fencekit/fencekit/internal/review"
)

func newAudit() *cobra.Command {
	d := &databaseFlags{timeout: time.Hour}
	return connected(d, newCommand("audit", nil), newAuditVerify(d), newAuditExport(d), newAuditWhy(d), newAuditReport(d), newAuditAnchor(d), newAuditKeygen())
}

type reviewed interface {
	Text(w io.Writer, width int) error
}

// askReview asks a review of the history, and writes the answer.
func askReview[R reviewed](
	cmd *cobra.Command, d *databaseFlags, q func(context.Context, *session, *review.Reader) (R, error),
) (R, error) {
	answer, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) (answer R, err error) {
		reader, err := review.NewReader(db.Pool, d.schema)
		if err != nil {
			return answer, err
		}
		return q(ctx, db, reader)
	})
	if err != nil {
		return answer, err
	}
	if w := cmd.OutOrStdout(); !cli.AsJSON(cmd) {
		return answer, answer.Text(w, cmp.Or(cli.TerminalWidth(w), cli.UsualWidth))
	}
	return answer, cli.WriteOne(cmd, answer)
}

func newAuditWhy(d *databaseFlags) *cobra.Command {
	var q review.Question
	cmd := newCommand("audit why", func(cmd *cobra.Command, args []string) error {
		q.Resource = args[0]
		if err := validateQuestion(cmd, q); err != nil {
			return err
		}
		x, err := askReview(cmd, d, func(ctx context.Context, db *session, r *review.Reader) (*review.Explanation, error) {
			x, err := r.Why(ctx, q)
			if err == nil && !x.Found() {
				err = d.requireKnown(ctx, db, q.Resource, false)
			}
			return x, err
		})
		if err == nil && !x.Found() {
			err = errors.New("there is no record")
		}
		return err
	})
	flags := cmd.Flags()
	flags.Int64Var(&q.Rejection, "rejection", 0, "explain the rejection with this number")
	flags.Int64Var((*int64)(&q.Token), "token", 0, "explain the latest rejection of this token, or what else became of it")
	flags.StringVar(&q.OpID, "op-id", "", "explain what became of the operation with this id (guard.OpID)")
	flags.Int64Var(&q.Position, "position", 0, "explain the entry at this position")
	cmd.MarkFlagsMutuallyExclusive(questions...)
	return cmd
}

var questions = []string{"rejection", "token", "op-id", "position"}

func validateQuestion(cmd *cobra.Command, q review.Question) error {
	for _, name := range questions {
		f := cmd.Flag(name)
		if f.Changed && (q == review.Question{Resource: q.Resource} || min(q.Rejection, int64(q.Token), q.Position) < 0) {
			return cli.UsageErrorf("--%s is %q, want an id, or a number from 1", name, f.Value)
		}
	}
	return nil
}

func newAuditReport(d *databaseFlags) *cobra.Command {
	var p review.Period
	cmd := newCommand("audit report", func(cmd *cobra.Command, _ []string) error {
		if !p.From.Before(p.To) {
			return cli.UsageErrorf("--until is %v, want it after --since, %v", cmd.Flag("until").Value, cmd.Flag("since").Value)
		}
		report, err := askReview(cmd, d, func(ctx context.Context, _ *session, r *review.Reader) (*review.Report, error) {
			return r.Report(ctx, p)
		})
		if err != nil {
			return err
		}
		switch report.Verdict {
		case review.VerdictViolated:
			return &cli.ExitError{Code: cli.ExitViolated, Err: errors.New("the history doesn't verify")}
		case review.VerdictUnguarded:
			return &cli.ExitError{Code: cli.ExitViolated, Err: fmt.Errorf("%s without a guard: \"fencectl protected --writes\" shows them", cli.Counted(report.Counts.Unguarded, "write"))}
		case review.VerdictIncomplete:
			return errors.New(report.Lacks)
		}
		return nil
	})
	cmd.Flags().Var((*instant)(&p.From), "since", "not before this time")
	cmd.Flags().Var((*instant)(&p.To), "until", "before this time")
	cmd.Flags().StringVar(&p.Resources, "resource", "*", "only resources that match this, with * and ?")
	requireFlags(cmd, "since", "until")
	return cmd
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

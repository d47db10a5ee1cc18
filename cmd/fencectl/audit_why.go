package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/review"
)

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
			return auditWhy(cmd, d, out, q, html)
		},
	}
	flags := cmd.Flags()
	flags.Int64Var(&q.Rejection, "rejection", 0, "explain the rejection with this number")
	flags.Int64Var((*int64)(&q.Token), "token", 0, "explain the latest rejection of this token, or what else became of it")
	flags.StringVar(&q.OpID, "op-id", "", "explain what became of the operation with this id (guard.OpID)")
	flags.Int64Var(&q.Position, "position", 0, "explain the entry at this position")
	flags.StringVar(&html, "html", "", "also write the page to this file, as HTML with a picture")
	return cmd
}

func validateQuestion(cmd *cobra.Command, q review.Question) error {
	if q.Resource == "" {
		return cli.UsageErrorf("RESOURCE is empty, want a name")
	}
	given := 0
	for _, flag := range []struct {
		name, want string
		ok         bool
	}{
		{"rejection", "a number from 1", q.Rejection > 0},
		{"token", "a number from 1", q.Token > 0},
		{"position", "a number from 1", q.Position > 0},
		{"op-id", "an id", q.OpID != ""},
	} {
		f := cmd.Flag(flag.name)
		if !f.Changed {
			continue
		}
		if given++; given > 1 {
			return cli.UsageErrorf("want one of --rejection, --token, --op-id and --position")
		}
		if !flag.ok {
			return cli.UsageErrorf("--%s is %q, want %s", flag.name, f.Value, flag.want)
		}
	}
	return nil
}

func auditWhy(cmd *cobra.Command, d *databaseFlags, out *cli.Output, q review.Question, html string) error {
	var x *review.Explanation
	err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		reader, err := review.NewReader(pool, d.schema)
		if err == nil {
			x, err = reader.Why(ctx, q)
		}
		return err
	})
	if err != nil {
		return err
	}
	if html != "" {
		if err := writePage(html, x.HTML); err != nil {
			return err
		}
	}
	if out.Format == cli.FormatTable {
		err = x.Text(cmd.OutOrStdout(), cmp.Or(cli.TerminalWidth(cmd.OutOrStdout()), cli.UsualWidth))
	} else {
		err = cli.WriteOne(cmd.OutOrStdout(), out.Format, x)
	}
	if err == nil && x.Rejection == nil && x.Entry == nil {
		err = &cli.ExitError{Code: cli.ExitInconclusive, Err: errors.New("there is no record")}
	}
	return err
}

// writePage writes a page to a file.
func writePage(name string, page func(io.Writer) error) error {
	var b bytes.Buffer
	err := page(&b)
	if err == nil {
		err = os.WriteFile(name, b.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("can't write the page (--html): %w", err)
	}
	return nil
}

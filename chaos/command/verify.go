package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/internal/cli"
)

func newVerify(out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR [flags]",
		Short: "Judge saved runs again",
		Long: `Judge the runs of a suite again by their saved files, as after a fix of a check,
and print those whose verdict or findings have changed. It changes no file.

Runs whose files were not kept keep their verdicts. The exit code is that of the
suite's verdict now: see "chaos run".`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.UsageErrorf("chaos verify takes the directory of a suite")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return verify(cmd, out, args[0]) },
	}
}

// changeRow is a row of "chaos verify".
type changeRow struct{ result.Change }

func (changeRow) Columns() []string { return []string{"dir", "was", "is", "findings"} }
func (r changeRow) Cells() []string {
	return []string{r.Dir, string(r.Was), string(r.Is), strings.Join(r.Findings, "; ")}
}

func verify(cmd *cobra.Command, out *cli.Output, dir string) error {
	v, err := result.Verify(dir)
	if err != nil {
		return suiteError(err)
	}
	var rows []changeRow
	for _, c := range v.Changes {
		rows = append(rows, changeRow{c})
	}
	if err := cli.WriteList(cmd.OutOrStdout(), out.Format, rows); err != nil {
		return errors.Join(byVerdict(v.Suite), err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d runs judged again: %d changed, %d not kept. The suite was %s, now %s.\n",
		v.Judged, len(v.Changes), len(v.Missing), v.Was, v.Suite.Verdict)
	return byVerdict(v.Suite)
}

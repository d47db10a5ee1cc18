// Package command is the command line of fencectl-chaos.
package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/chaos/internal/suite"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/cli"
)

// Main is the whole main of fencectl-chaos, its worker processes included. It never returns.
func Main() {
	chaos.Reexec()
	cli.Main(newRoot())
}

func newRoot() *cobra.Command {
	root := cli.NewRoot("fencectl-chaos", "Run Fencekit under real faults, with controls that must fail",
		"Fencectl-chaos runs Fencekit under real faults, with controls that must fail.")
	root.AddCommand(newList(), newRun())
	return root
}

func newList() *cobra.Command {
	return &cobra.Command{
		Use:   "list [scenarios|groups] [flags]",
		Short: "List scenarios or groups",
		Long: `List what "fencectl-chaos run" can run: scenarios (the default), or the groups
that run them (Fencekit and its controls).`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !slices.Contains([]string{"scenarios", "groups"}, args[0]) {
				return cli.UsageErrorf("list takes one of scenarios or groups")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(args, "groups") {
				return cli.Write(cmd, worker.Groups())
			}
			return cli.Write(cmd, run.Describe())
		},
	}
}

func newRun() *cobra.Command {
	c := &suite.Config{}
	cmd := &cobra.Command{
		Use:   "run [flags]",
		Short: "Run scenarios, and judge them",
		Long: `Run scenarios with Fencekit and with controls, on etcd and Postgres servers
that the command starts, and judge what happened.

The directory of --out gets result.json, and for each run its own, its history
and what was observed.

A run of a control is red if it violated a property that its recipe has to
violate, as it must with faults, and green if it violated none.

Exit codes:
  0  no property was violated, and each control broke
  1  a property was violated under Fencekit
  2  the suite is inconclusive: it was interrupted, a run lacked a fault that
     its scenario requires, a control survived, or none ran (--groups fenced)
  3  a server can't be started`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runSuite(cmd, c) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&c.Scenarios, "scenario", nil, "names, families or patterns of scenarios, such as stalls,pauses (default all)")
	flags.StringSliceVar(&c.Groups, "groups", nil, "names or patterns of groups, such as fenced,etcd-* (default all)")
	flags.Uint64Var(&c.Seed, "seed", 1, "the first seed")
	flags.IntVar(&c.Seeds, "seeds", 1, "how many seeds each scenario runs with")
	flags.IntVar(&c.ScriptSeeds, "script-seeds", 1, "how many of these seeds controls and scripts run with")
	flags.DurationVar(&c.Duration, "duration", 0, "begin new runs for this long, instead of --seeds; those with the first seed are all done, however long that takes")
	flags.IntVar(&c.Parallel, "parallel", 1, "how many runs go on at the same time, each on its own servers")
	flags.StringVar(&c.Dir, "out", "", "directory for the results (default chaos- and the time)")
	return cmd
}

func validate(cmd *cobra.Command, c *suite.Config) error {
	switch changed := cmd.Flags().Changed; {
	case changed("duration") && changed("seeds"):
		return cli.UsageErrorf("--duration and --seeds exclude each other")
	case c.Dir == "":
		c.Dir = "chaos-" + time.Now().UTC().Format("20060102-150405")
	}
	return nil
}

func runSuite(cmd *cobra.Command, c *suite.Config) error {
	if err := validate(cmd, c); err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	c.Progress = progress(stderr, c)
	result, err := suite.Run(cmd.Context(), *c)
	if result == nil {
		return runError(err)
	}
	rows := make([]runRow, len(result.Runs))
	for i, r := range result.Runs {
		rows[i] = runRow{r}
	}
	if writeErr := cli.Write(cmd, rows); writeErr != nil {
		return errors.Join(outcome(result, err), writeErr)
	}
	fmt.Fprintf(stderr, "The results are in %s\n", c.Dir)
	if err := outcome(result, err); err != nil {
		return err
	}
	fmt.Fprintln(stderr, result.Reason)
	return nil
}

// outcome is nil for a suite that passed. A violation stays one, however the suite ended.
func outcome(result *check.Suite, err error) error {
	switch {
	case err != nil && result.Verdict == check.Violated:
		return &cli.ExitError{Code: cli.ExitViolated, Err: fmt.Errorf("%s The suite ended early: %w", result.Reason, err)}
	case err != nil:
		return runError(err)
	case result.Verdict == check.Violated:
		return &cli.ExitError{Code: cli.ExitViolated, Err: errors.New(result.Reason)}
	case result.Verdict == check.Inconclusive:
		return &cli.ExitError{Code: cli.ExitInconclusive, Err: errors.New(result.Reason)}
	}
	return nil
}

func runError(err error) error {
	switch {
	case errors.Is(err, worker.ErrConfig):
		return cli.UsageErrorf("%w", err)
	case errors.Is(err, suite.ErrEnvironment):
		return cli.NotReady(err)
	}
	return err
}

func progress(w io.Writer, c *suite.Config) func(suite.Progress) {
	begun := false
	return func(now suite.Progress) {
		if !begun {
			begun = true
			left := now.Total - now.Done
			parallel := max(c.Parallel, 1)
			about := (time.Duration((left+parallel-1)/parallel) * run.Usual).Round(time.Second)
			fmt.Fprintf(w, "%d runs of about %v, %d at a time: about %v.", left, run.Usual, parallel, about)
			if c.Duration > 0 {
				fmt.Fprintf(w, " These have the first seed and are all done, however long that takes; others begin until %v have passed.", c.Duration)
			}
			fmt.Fprintln(w)
		}
		if now.Ended {
			fmt.Fprintln(w, runLine(now))
		}
	}
}

// runLine is as "run 3 of 12: pass: pauses, fenced, seed 1 (9.8s)".
func runLine(now suite.Progress) string {
	r := now.Run
	done := fmt.Sprintf("%d of %d", now.Done, now.Total)
	if now.Done > now.Total { // once a Duration alone decides
		done = fmt.Sprint(now.Done)
	}
	word := string(r.Verdict)
	switch {
	case r.Red():
		word = "red (broke, as a control must)"
	case r.Group != check.Fenced && r.Verdict == check.Pass && r.Faults:
		word = "green (did not break)"
	case r.Group != check.Fenced && r.Verdict == check.Pass:
		word = "green (held, as it must without faults)"
	}
	line := fmt.Sprintf("run %s: %s: %s (%v)", done, word, r, r.Took.Round(100*time.Millisecond))
	if r.Verdict != check.Pass && !r.Red() {
		line += ": " + r.Reason
	}
	return line
}

type runRow struct{ check.Run }

// Columns implements a row of cli.WriteTable.
func (r runRow) Columns() any {
	c := r.Counts
	return struct {
		Run                                                       string
		Verdict                                                   check.Verdict
		Operations, Injected, Rejections, Unknown, Oversold, Lost int
	}{r.String(), r.Verdict, c.Operations, c.Faults, c.Rejections, c.Unknown, c.Oversold, c.Lost}
}

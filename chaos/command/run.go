package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/cli"
)

// runFlags are the flags of "chaos run".
type runFlags struct {
	config run.Config
	junit  string
}

func newRun(out *cli.Output) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags]",
		Short: "Run scenarios, and judge them",
		Long: `Run scenarios with Fencekit and with controls, on etcd, Postgres and Redis
servers that the command starts, and judge what happened.

The directory of --out gets result.json, report.html, junit.xml, and for each
run its history and what was observed. A suite that was interrupted keeps its
finished runs, and --resume goes on with it; without a suite there, --resume
begins one.

A run of a control is red if it violated a property that its recipe has to
violate, as it must with faults, and green if it violated none.

Exit codes:
  0  no property was violated, and each control broke
  1  a property was violated under Fencekit
  2  the suite is inconclusive: it was interrupted, a run lacked a fault that
     its scenario requires, a control survived, or none ran (--groups fenced)
  3  a server can't be started`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSuite(cmd, out, f) },
	}
	flags, c := cmd.Flags(), &f.config
	flags.StringSliceVar(&c.Scenarios, "scenario", nil, "names, families or patterns of scenarios, such as stalls,pauses (default all)")
	flags.StringSliceVar(&c.Groups, "groups", nil, "names or patterns of groups, such as fenced,redis-* (default all)")
	flags.Uint64Var(&c.Seed, "seed", 1, "the first seed")
	flags.IntVar(&c.Seeds, "seeds", 1, "how many seeds each scenario runs with")
	flags.IntVar(&c.ScriptSeeds, "script-seeds", 1, "how many of these seeds controls and scripts run with")
	flags.DurationVar(&c.Duration, "duration", 0, "begin new runs for this long, instead of --seeds; those with the first seed are all done, however long that takes")
	flags.IntVar(&c.Parallel, "parallel", 1, "how many runs go on at the same time, each on its own servers")
	flags.StringVar(&c.Dir, "out", "", "directory for the results (default chaos- and the time)")
	flags.BoolVar(&c.Resume, "resume", false, "go on with the suite in --out")
	flags.StringVar(&f.junit, "junit", "", "also write JUnit XML to this file")
	return cmd
}

// validate checks the flags, and gives --out its default.
func (f *runFlags) validate(cmd *cobra.Command) error {
	c := &f.config
	for name, n := range map[string]uint64{"seed": c.Seed, "seeds": atLeast0(c.Seeds), "script-seeds": atLeast0(c.ScriptSeeds), "parallel": atLeast0(c.Parallel)} {
		if n < 1 {
			return cli.UsageErrorf("--%s is %s, want at least 1", name, cmd.Flag(name).Value)
		}
	}
	switch changed := cmd.Flags().Changed; {
	case changed("duration") && c.Duration <= 0:
		return cli.UsageErrorf("--duration is %v, want more than 0, such as 10m", c.Duration)
	case changed("duration") && changed("seeds"):
		return cli.UsageErrorf("--duration and --seeds exclude each other")
	case changed("out") && c.Dir == "": // an unset variable of a script
		return cli.UsageErrorf("--out is empty")
	case changed("scenario") && len(c.Scenarios) == 0:
		return cli.UsageErrorf("--scenario is empty")
	case changed("groups") && len(c.Groups) == 0:
		return cli.UsageErrorf("--groups is empty")
	case changed("junit") && f.junit == "":
		return cli.UsageErrorf("--junit is empty")
	case c.Resume && c.Dir == "":
		return cli.UsageErrorf("--resume needs --out: the directory of the suite to go on with")
	case c.Dir == "":
		c.Dir = "chaos-" + time.Now().UTC().Format("20060102-150405")
	}
	return f.emptyJUnit()
}

// emptyJUnit creates the file of --junit, or empties it: so a file that can't be written
// fails now and not hours later, and an earlier suite's results don't stay.
func (f *runFlags) emptyJUnit() error {
	if f.junit == "" {
		return nil
	}
	if err := writeFile(f.junit, func(io.Writer) error { return nil }); err != nil {
		return cli.UsageErrorf("--junit: %w", err)
	}
	return nil
}

func atLeast0(n int) uint64 { return uint64(max(n, 0)) }

func runSuite(cmd *cobra.Command, out *cli.Output, f *runFlags) error {
	if err := f.validate(cmd); err != nil {
		return err
	}
	progress := newProgress(cmd.ErrOrStderr(), &f.config)
	f.config.Progress, f.config.Command = progress.update, commandLine(cmd)
	suite, err := run.Run(cmd.Context(), f.config)
	progress.close()
	if suite == nil {
		return runError(err)
	}
	if f.junit != "" {
		err = errors.Join(err, writeFile(f.junit, func(w io.Writer) error { return result.JUnit(w, suite) }))
	}
	if writeErr := cli.WriteList(cmd.OutOrStdout(), out.Format, totalRows(suite)); writeErr != nil {
		return errors.Join(outcome(suite, err), writeErr)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "The report is %s\n", filepath.Join(f.config.Dir, result.ReportFile))
	if cmd.Context().Err() != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "The same command with --resume --out %s goes on with it.\n", quoted(f.config.Dir))
	}
	if err := outcome(suite, err); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), suite.Reason)
	return nil
}

// outcome is nil for a suite that passed. A violation stays one, however the suite ended.
func outcome(suite *result.Suite, err error) error {
	switch {
	case err == nil:
		return byVerdict(suite)
	case suite.Verdict == result.Violated:
		return &cli.ExitError{Code: cli.ExitViolated, Err: fmt.Errorf("%s The suite ended early: %w", suite.Reason, err)}
	}
	return runError(err)
}

// runError adds the exit code to an error of Run.
func runError(err error) error {
	switch {
	case errors.Is(err, workload.ErrConfig):
		return cli.UsageErrorf("%w", err)
	case errors.Is(err, run.ErrEnvironment):
		return cli.NotReady(err)
	}
	return err
}

func writeFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return write(file)
}

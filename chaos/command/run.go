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
servers that are started for it, and judge what happened.

The directory of --out gets result.json, report.html, junit.xml, and for each
run its history and what was observed. A suite that was interrupted has what it
has done so far, and --resume goes on with it; it begins a suite if there is
none.

A run of a control is red if it broke what its recipe has to break, as it must
under faults, and green if it broke nothing.

Exit codes:
  0  no property was violated, and each control broke
  1  a property was violated under the framework
  2  the suite shows nothing, as when it was interrupted, a run met nothing, a
     control stayed green, or none ran (--groups fenced)
  3  a server can't be started`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSuite(cmd, out, f) },
	}
	flags, c := cmd.Flags(), &f.config
	flags.StringSliceVar(&c.Scenarios, "scenario", nil, "names, families or patterns of scenarios, such as stalls,pauses (default all)")
	flags.StringSliceVar(&c.Groups, "groups", nil, "names or patterns of groups, such as fenced,redis-* (default all)")
	flags.Uint64Var(&c.Seed, "seed", 1, "the first seed")
	flags.IntVar(&c.Seeds, "seeds", 1, "with how many seeds each scenario runs")
	flags.IntVar(&c.ScriptSeeds, "script-seeds", 1, "with how many of these seeds controls and scripts run")
	flags.DurationVar(&c.Duration, "duration", 0, "begin new runs for so long, instead of --seeds; all with the first seed are done")
	flags.IntVar(&c.Parallel, "parallel", 1, "how many runs go on at a time, each on servers of its own")
	flags.StringVar(&c.Dir, "out", "", "directory for what is kept (default chaos- and the time)")
	flags.BoolVar(&c.Resume, "resume", false, "go on with the suite in --out")
	flags.StringVar(&f.junit, "junit", "", "also write JUnit's XML to this file")
	return cmd
}

// validate rejects what no run can be made of, and gives --out its default.
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
	case changed("out") && c.Dir == "": // a script's unset cli.Variable
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

// emptyJUnit makes the file of --junit, or empties it: better now than hours later it
// turns out that it can't be written, and nobody takes an earlier suite's for this one's.
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
	progress := newProgress(cmd.ErrOrStderr())
	f.config.Progress, f.config.Command = progress.tell, commandLine(cmd)
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

// outcome is nil for a suite that passed. A violation stays one, whatever ended the
// suite after it.
func outcome(suite *result.Suite, err error) error {
	switch {
	case err == nil:
		return byVerdict(suite)
	case suite.Verdict == result.Violated:
		return &cli.ExitError{Code: cli.ExitViolated, Err: fmt.Errorf("%s The suite ended early: %w", suite.Reason, err)}
	}
	return runError(err)
}

// runError gives what Run failed with its exit code.
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

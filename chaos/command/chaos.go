package command

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/internal/cli"
)

// newRoot returns the whole command line, with all flags at their defaults.
func newRoot() *cobra.Command {
	root, out := cli.NewRoot("fencectl chaos", "Run Fencekit under real faults, with controls that must fail",
		"Fencectl chaos runs Fencekit under real faults, with controls that must fail.")
	root.AddCommand(newList(out), newRun(out), newVerify(out), newCompare(out))
	return root
}

// loadSuite reads the suite in a directory.
func loadSuite(dir string) (*result.Suite, error) {
	suite, err := result.LoadSuite(dir)
	if err != nil {
		return nil, suiteError(err)
	}
	suite.Judge() // it may have runs that its own file lacks
	return suite, nil
}

// suiteError makes a missing suite a usage error.
func suiteError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return cli.UsageErrorf("%w", err)
	}
	return err
}

// byVerdict is nil for a pass, and otherwise the suite's reason with its exit code.
func byVerdict(suite *result.Suite) error {
	switch suite.Verdict {
	case result.Pass:
		return nil
	case result.Violated:
		return &cli.ExitError{Code: cli.ExitViolated, Err: errors.New(suite.Reason)}
	}
	return &cli.ExitError{Code: cli.ExitInconclusive, Err: errors.New(suite.Reason)}
}

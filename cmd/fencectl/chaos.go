package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/chaos/result"
)

func newChaos(g *globals) *cobra.Command {
	chaos := newGroup("chaos", "Run Fencekit under real faults, with controls that must fail")
	chaos.AddCommand(newChaosList(g), newChaosRun(g), newChaosVerify(g), newChaosCompare(g))
	return chaos
}

// loadSuite reads the suite in a directory.
func loadSuite(dir string) (*result.Suite, error) {
	suite, err := result.LoadSuite(dir)
	if err != nil {
		return nil, suiteError(err)
	}
	suite.Judge() // it may have runs that its own file doesn't know of
	return suite, nil
}

// suiteError says that a directory without a suite is the wrong one.
func suiteError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return usageErrorf("%w", err)
	}
	return err
}

// byVerdict is nil for a pass, and else the suite's reason with its exit code.
func byVerdict(suite *result.Suite) error {
	switch suite.Verdict {
	case result.Pass:
		return nil
	case result.Violated:
		return &codedError{exitViolated, errors.New(suite.Reason)}
	}
	return &codedError{exitInconclusive, errors.New(suite.Reason)}
}

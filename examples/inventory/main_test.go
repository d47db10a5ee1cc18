package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/examples/inventory/demo"
)

func TestRun_RefusesWrongCommands(t *testing.T) {
	for _, args := range [][]string{nil, {"sell"}, {"worker", "-fast"}, {"demo", "-fast"}, {"demo", "more"},
		{"serve"}, {"serve", "-fast"}, {"init"}, {"init", "-postgres", "x", "more"}, {"try", "more"}} {
		require.Equal(t, exitUsage, run(args), args)
	}
}

func TestRun_HelpIsNoMistake(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}, {"demo", "--help"}, {"try", "-h"}, {"init", "--help"}, {"serve", "--help"}, {"worker", "--help"}} {
		require.Equal(t, exitOK, run(args), args)
	}
}

func TestExitCode_SaysWhatTheDemoHasShown(t *testing.T) {
	require.Equal(t, exitOK, exitCode(nil))
	require.Equal(t, exitViolated, exitCode(fmt.Errorf("%w", demo.ErrViolated)))
	require.Equal(t, exitInconclusive, exitCode(fmt.Errorf("%w", demo.ErrInconclusive)))
	require.Equal(t, exitEnvironment, exitCode(errors.New("no Postgres")))
}

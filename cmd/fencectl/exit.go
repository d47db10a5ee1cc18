package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes are a contract with scripts.
const (
	exitOK           = 0
	exitViolated     = 1
	exitInconclusive = 2
	exitNotReady     = 3
	exitUsage        = 64
)

// exitCodes is the contract in words, for the help.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "ok"},
	{exitViolated, "a property is violated"},
	{exitInconclusive, "inconclusive: interrupted, or failed in a way that tells nothing"},
	{exitNotReady, "environment not ready: no answer, no rights, or migrations missing"},
	{exitUsage, "usage"},
}

func exitCodeHelp() string {
	var b strings.Builder
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "  %-3d %s\n", e.code, e.meaning)
	}
	return b.String()
}

// codedError is an error that ends the process with a code of the contract.
// Any other error is inconclusive.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// usageErrorf says what is wrong with the command line or the variables that
// stand for flags.
func usageErrorf(format string, args ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, args...)}
}

// notReady says that err is due to the database and not to what was asked.
func notReady(err error) error { return &codedError{exitNotReady, err} }

// run is fencectl with the given arguments. It returns the exit code and ends
// early when ctx is cancelled, with exitInconclusive unless a violation was found.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetUsageTemplate(usageTemplate(cmp.Or(terminalWidth(stdout), usualWidth)))
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := exitInconclusive
	coded := (*codedError)(nil)
	if errors.As(err, &coded) && (ctx.Err() == nil || coded.code == exitViolated) {
		code = coded.code
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", err)
	}
	complain(stderr, cmd, code, err)
	return code
}

func complain(stderr io.Writer, cmd *cobra.Command, code int, err error) {
	fmt.Fprintf(stderr, "fencectl: %v\n", err)
	if code == exitUsage {
		fmt.Fprintf(stderr, "Run \"%s --help\" for usage.\n", cmd.CommandPath())
	}
}

package cli

import (
	"fmt"
	"strings"
)

// The exit codes are a contract with scripts.
const (
	ExitOK           = 0
	ExitViolated     = 1
	ExitInconclusive = 2
	ExitNotReady     = 3
	ExitUsage        = 64
)

// exitCodes is the contract in words, for the help.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{ExitOK, "ok"},
	{ExitViolated, "a property is violated"},
	{ExitInconclusive, "inconclusive: interrupted, or failed in a way that tells nothing"},
	{ExitNotReady, "environment not ready: no answer, no rights, or migrations missing"},
	{ExitUsage, "usage"},
}

func exitCodeHelp() string {
	var b strings.Builder
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "  %-3d %s\n", e.code, e.meaning)
	}
	return b.String()
}

// ExitError is an error that ends the process with a code of the contract, or of a program that
// the command ran. Any other error is inconclusive.
type ExitError struct {
	Code int
	Err  error
	// Final means that the code stands even if the command was interrupted. Then a nil Err
	// means that there is nothing to say.
	Final bool
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}
func (e *ExitError) Unwrap() error { return e.Err }

// UsageErrorf says what is wrong with the command line or the variables that
// stand for flags.
func UsageErrorf(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// NotReady says that err is due to the database and not to what was asked.
func NotReady(err error) error { return &ExitError{Code: ExitNotReady, Err: err} }

// Final ends the process with a code even if it was interrupted. A nil err prints nothing.
func Final(code int, err error) error { return &ExitError{Code: code, Err: err, Final: true} }

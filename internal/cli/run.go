package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes are a contract with scripts.
const (
	ExitOK           = 0
	ExitViolated     = 1
	ExitInconclusive = 2
	ExitNotReady     = 3
	ExitUsage        = 64
)

const exitCodes = `  0   ok
  1   a property is violated
  2   inconclusive: interrupted, or failed in a way that tells nothing
  3   environment not ready: no answer, no rights, or migrations missing
  64  usage
`

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

// Main runs a command line as its process's whole main: until it has ended or is
// interrupted. A second signal ends the process at once. Main never returns.
func Main(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, root, os.Args[1:], os.Stdout, os.Stderr))
}

// Run runs a command line with the given arguments. It returns the exit code and ends
// early when ctx is cancelled, with ExitInconclusive unless a violation was found.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetUsageTemplate(usageTemplate(cmp.Or(TerminalWidth(stdout), UsualWidth)))
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	code := ExitInconclusive
	coded := (*ExitError)(nil)
	if errors.As(err, &coded) && coded.Final {
		if coded.Err != nil {
			complain(stderr, cmd, coded.Code, err)
		}
		return coded.Code
	}
	if errors.As(err, &coded) && (ctx.Err() == nil || coded.Code == ExitViolated) {
		code = coded.Code
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", err)
	}
	complain(stderr, cmd, code, err)
	return code
}

func complain(stderr io.Writer, cmd *cobra.Command, code int, err error) {
	fmt.Fprintf(stderr, "fencectl: %v\n", err)
	if code == ExitUsage {
		fmt.Fprintf(stderr, "Run \"%s --help\" for usage.\n", cmd.CommandPath())
	}
}

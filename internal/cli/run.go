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

// Package cli is what the commands of fencectl and fencectl-chaos share: a root
// command that says what is wrong with a command line, exit codes, flags with
// their environment variables, and data as a table or JSON.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes are a contract with scripts.
const (
	ExitOK           = 0
	ExitViolated     = 1
	ExitInconclusive = 2
	ExitNotReady     = 3
	ExitUsage        = 64
)

const preamble = `

Data goes to stdout, everything else to stderr. A flag overrides its environment
variable.

Exit codes:
  0   ok
  1   a property is violated
  2   inconclusive: interrupted, or failed in a way that tells nothing
  3   environment not ready: no answer, no rights, or migrations missing
  64  usage
`

// ExitError is an error that ends the process with a code of the contract, or of a program that
// the command ran. Any other error is inconclusive, or of the command line if no command has begun.
type ExitError struct {
	Code int
	Err  error
	// Final means that the code stands even if the command was interrupted. Then a nil Err
	// means that there is nothing to say.
	Final bool
}

func (e *ExitError) Error() string { return fmt.Sprint(e.Err) }
func (e *ExitError) Unwrap() error { return e.Err }

// UsageErrorf says what is wrong with the command line or the variables that stand for flags.
func UsageErrorf(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// NotReady says that err is due to the database and not to what was asked.
func NotReady(err error) error { return &ExitError{Code: ExitNotReady, Err: err} }

// Final ends the process with a code even if it was interrupted. A nil err prints nothing.
func Final(code int, err error) error { return &ExitError{Code: code, Err: err, Final: true} }

// NewRoot returns a root command with the global flag --output, and --version.
func NewRoot(name, short, about string) *cobra.Command {
	root := &cobra.Command{
		Use: name, Short: short, Long: about + preamble, Version: ModuleVersion(),
		SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return complete(cmd.Flags()) },
	}
	cobra.EnableTraverseRunHooks = true
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp(root))
	format := formatTable
	root.PersistentFlags().VarP(&Choice{&format, []string{formatTable, formatJSON}}, "output", "o", "format of data on stdout: table or json")
	NameVariables(root.PersistentFlags(), "output")
	root.SetVersionTemplate(name + " {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version of "+name)
	return root
}

// ModuleVersion is the version of the module that this binary was built of.
func ModuleVersion() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return build.Main.Version
}

const usage = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND [flags]

Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{else}}{{.UseLine}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped WIDTH | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Global flags:
{{.InheritedFlags.FlagUsagesWrapped WIDTH | trimTrailingWhitespaces}}{{end}}
`

// Main runs a command line as its process's whole main: until it has ended or is
// interrupted. A second signal ends the process at once. Main never returns.
func Main(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, root, os.Args[1:], os.Stdout, os.Stderr))
}

// Run runs a command line with the given arguments, once for a root. It returns the exit code and ends
// early when ctx is cancelled, with ExitInconclusive unless a violation was found.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	begun := false
	stderr = Visible(stderr)
	root.InitDefaultCompletionCmd()
	prepare(root, &begun)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetUsageTemplate(strings.ReplaceAll(usage, "WIDTH", strconv.Itoa(cmp.Or(TerminalWidth(stdout), UsualWidth))))
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	coded := &ExitError{Code: ExitUsage, Err: err}
	if begun {
		coded.Code = ExitInconclusive
	}
	errors.As(err, &coded)
	code := coded.Code
	if ctx.Err() != nil && !coded.Final {
		err = fmt.Errorf("interrupted: %w", err)
		if code != ExitViolated {
			code = ExitInconclusive
		}
	}
	if coded.Err == nil {
		return code
	}
	fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
	if code == ExitUsage {
		fmt.Fprintf(stderr, "Run \"%s --help\" for usage.\n", cmd.CommandPath())
	}
	return code
}

// prepare has a command say that it has begun. A group of commands gets a function: cobra prints the help of one that
// has none, and reports success, even if it was called with a misspelt command.
func prepare(cmd *cobra.Command, begun *bool) {
	if !cmd.Runnable() {
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, whichCommand
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		*begun = true
		return run(cmd, args)
	}
	for _, below := range cmd.Commands() {
		prepare(below, begun)
	}
}

func whichCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return UsageErrorf("which command? %s has %s", cmd.CommandPath(), strings.Join(names, ", "))
}

var word = regexp.MustCompile(`^[a-z][a-z-]{0,19}$`)

// unknownCommand repeats arg only if it looks like a command: it may be a
// database URL in the wrong place.
func unknownCommand(cmd *cobra.Command, arg string) error {
	if !word.MatchString(arg) {
		return UsageErrorf("%s has no such command", cmd.CommandPath())
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(arg); len(near) > 0 {
		return UsageErrorf("%s has no command %q; did you mean %s?", cmd.CommandPath(), arg, strings.Join(near, " or "))
	}
	return UsageErrorf("%s has no command %q", cmd.CommandPath(), arg)
}

// Args rejects a command line without exactly these arguments, or with an empty one. It repeats none of them: one may be a database URL.
func Args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == len(names) && !slices.Contains(args, ""):
			return nil
		case len(names) == 0:
			return UsageErrorf("%s takes no arguments besides flags, and got %d", cmd.CommandPath(), len(args))
		}
		return UsageErrorf("%s takes one argument, %s, which is not empty", cmd.CommandPath(), strings.Join(names, " "))
	}
}

// flagError blames a misspelt command rather than the flags that follow it, and
// repeats no more of an unknown flag than its name.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		return unknownCommand(cmd, cmd.Flags().Arg(0))
	}
	var unknown *pflag.NotExistError
	var flag interface{ GetFlag() *pflag.Flag } // whose value is wrong, or missing
	switch {
	case errors.As(err, &flag) && !strings.Contains(err.Error(), " like "): // as pflag says of a duration
		return UsageErrorf("%w%s", err, like(flag.GetFlag()))
	case !errors.As(err, &unknown):
		return err
	}
	name := unknown.GetSpecifiedName()
	switch {
	case unknown.GetSpecifiedShortnames() != "":
		return UsageErrorf("unknown flag -%s", name)
	case word.MatchString(name):
		return UsageErrorf("unknown flag --%s", name)
	}
	return UsageErrorf("unknown flag")
}

// like shows what a flag takes, if that has more than one form.
func like(f *pflag.Flag) string {
	if value, ok := f.Value.(interface{ Example() string }); ok {
		return ", want something like " + value.Example()
	} else if f.Value.Type() == "duration" {
		return ", want something like 30s or 5m"
	}
	return ""
}

// newHelp stands in for cobra's help command, which reports success for a
// command that doesn't exist.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = unknownCommand(cmd, rest[0])
			}
			if err != nil {
				return err
			}
			root.SetArgs(append(args, "--help"))
			return root.Execute()
		},
	}
}

// Choice is the value of a flag that has one of a few words.
type Choice struct {
	To *string
	Of []string
}

func (c *Choice) String() string { return *c.To }

func (c *Choice) Type() string { return "word" }

func (c *Choice) Set(s string) error {
	if !slices.Contains(c.Of, s) {
		return fmt.Errorf("want one of %s", strings.Join(c.Of, ", "))
	}
	*c.To = s
	return nil
}

// hasVariable annotates a flag that an environment variable stands for; its value is taken once that was used.
const hasVariable = "variable"

// NameVariables has an environment variable stand for each of these flags, and says so in their help.
func NameVariables(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		f.Usage += " (" + variable(f) + ")"
		_ = flags.SetAnnotation(name, hasVariable, nil) // it fails for an unknown flag only
	}
}

func variable(f *pflag.Flag) string {
	return "FENCEKIT_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// complete rejects flags that were given and are empty: a script's unset variable is no wish for everything, or for
// the default. It names those that are required and missing. It takes the flags that were not given from their
// variables, if they have one, and marks them as changed. An empty variable counts as unset.
func complete(flags *pflag.FlagSet) (err error) {
	var missing []string
	example := ""
	flags.VisitAll(func(f *pflag.Flag) {
		words := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			words = list.GetSlice()
		}
		if err == nil && f.Changed && (len(words) == 0 || slices.Contains(words, "")) {
			err = UsageErrorf("--%s is empty: give a value, or leave the flag out%s", f.Name, like(f))
		}
		if !f.Changed && f.Annotations[cobra.BashCompOneRequiredFlag] != nil {
			missing, example = append(missing, "--"+f.Name), cmp.Or(like(f), example)
		}
		_, has := f.Annotations[hasVariable]
		value := os.Getenv(variable(f))
		if err != nil || !has || f.Changed || value == "" {
			return
		}
		if bad := f.Value.Set(value); bad != nil {
			err = UsageErrorf("%s: %w", variable(f), bad)
			return
		}
		f.Changed, f.Annotations[hasVariable] = true, []string{"taken"}
	})
	if err == nil && missing != nil {
		err = UsageErrorf("required: %s%s", strings.Join(missing, ", "), example)
	}
	return err
}

// IsGiven reports whether the command line has a flag. What a variable said doesn't count.
func IsGiven(f *pflag.Flag) bool { return f.Changed && len(f.Annotations[hasVariable]) == 0 }

// Package cli is what the commands of fencectl and fencectl-chaos share: a root
// command that says what is wrong with a command line, exit codes, flags with
// their environment variables, and data as a table, JSON, JSON lines or CSV.
package cli

import (
	"errors"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NewRoot returns a root command with the global flag --output, and --version. What
// its users type is name, which may be more than one word; about completes "NAME ...".
func NewRoot(name, short, about string) (*cobra.Command, *Output) {
	words := strings.Fields(name)
	root := NewGroup(words[len(words)-1], short)
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	root.Long = about + `

Data goes to stdout, everything else to stderr. A flag overrides its environment
variable. Headings are bold on a terminal, unless NO_COLOR is set or TERM is
dumb.

Exit codes:
` + exitCodes
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.CompletionOptions.DisableDefaultCmd = true // its help is long
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp(root))
	o := &Output{Format: FormatTable}
	root.PersistentFlags().VarP(&o.Format, "output", "o", "format of data on stdout: "+formatNames)
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // it fails for an unknown flag only
	NameVariables(root.PersistentFlags(), "output")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return FillFromVariables(cmd.Flags()) }
	build, _ := debug.ReadBuildInfo()
	root.Version = ModuleVersion(build)
	root.SetVersionTemplate(name + " {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version of "+name)
	return root, o
}

// Output is how a command writes its data.
type Output struct{ Format Format }

// ModuleVersion is the version of the module that a binary was built of; "unknown"
// for nil, as of a binary without module support.
func ModuleVersion(build *debug.BuildInfo) string {
	if build == nil {
		return "unknown"
	}
	return build.Main.Version
}

func usageTemplate(width int) string {
	return strings.ReplaceAll(usage, "WIDTH", strconv.Itoa(width))
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

// NewGroup returns a command that only has commands below it. It is runnable,
// since cobra prints the help of one that isn't and reports success, even if it
// was called with a misspelt command.
func NewGroup(name, short string) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return UsageErrorf("which command? %s has %s", cmd.CommandPath(), strings.Join(commandNames(cmd), ", "))
		},
	}
}

func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
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

// NoArgs is the Args of commands that take flags alone.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return UsageErrorf("%s takes no arguments besides flags, and got %d", cmd.CommandPath(), len(args))
	}
	return nil
}

// OneArg rejects a command line without exactly one argument, of this name.
func OneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return UsageErrorf("%s takes one argument, %s", cmd.CommandPath(), name)
		}
		return nil
	}
}

// flagError blames a misspelt command rather than the flags that follow it, and
// repeats no more of an unknown flag than its name.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		return unknownCommand(cmd, cmd.Flags().Arg(0))
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return UsageErrorf("%w", err)
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

// newHelp stands in for cobra's help command, which reports success for a
// command that doesn't exist.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return UsageErrorf("%w", err)
			}
			if cmd.DisableFlagParsing { // it stands for another program, which knows its own help
				return cmd.RunE(cmd, append(rest, "--help"))
			}
			if len(rest) > 0 {
				return unknownCommand(cmd, rest[0])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
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

// FillFromVariables takes the flags that were not given from their variables, if they have one, and
// marks them as changed. An empty variable counts as unset.
func FillFromVariables(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
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
	return err
}

// IsGiven reports whether the command line has a flag. What a variable said doesn't count.
func IsGiven(f *pflag.Flag) bool { return f.Changed && len(f.Annotations[hasVariable]) == 0 }

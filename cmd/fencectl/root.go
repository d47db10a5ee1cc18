package main

import (
	"errors"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newRoot returns the whole command line, with all flags at their defaults.
func newRoot() *cobra.Command {
	g := &globals{}
	root := newGroup("fencectl", "Look after Fencekit in a database, and prove it under faults")
	root.Long = `Fencectl looks after Fencekit in a database, and runs it under real faults.

Data goes to stdout, everything else to stderr. A flag wins over its variable.
Headings are bold on a terminal unless NO_COLOR is set or TERM is dumb.

Exit codes:
` + exitCodeHelp()
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp(root))
	g.registerOutput(root.PersistentFlags())
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return g.fill(cmd.InheritedFlags()) }
	build, _ := debug.ReadBuildInfo()
	root.Version = moduleVersion(build)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version of fencectl")
	root.AddCommand(newMigrate(g), newChaos(g), newVersion(g))
	return root
}

// usageTemplate is the help of a command, with flags wrapped to a width.
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

// newGroup returns a command that only has commands below it. It is runnable,
// since cobra prints the help of one that isn't and reports success, even if it
// was called with a misspelt command.
func newGroup(name, short string) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return usageErrorf("which command? %s has %s", cmd.CommandPath(), strings.Join(commandNames(cmd), ", "))
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
		return usageErrorf("%s has no such command", cmd.CommandPath())
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(arg); len(near) > 0 {
		return usageErrorf("%s has no command %q; did you mean %s?", cmd.CommandPath(), arg, strings.Join(near, " or "))
	}
	return usageErrorf("%s has no command %q", cmd.CommandPath(), arg)
}

// noArgs is the Args of commands that take flags alone.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s takes no arguments besides flags, and got %d", cmd.CommandPath(), len(args))
	}
	return nil
}

// flagError blames a misspelt command rather than the flags that follow it, and
// repeats no more of an unknown flag than its name.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		return unknownCommand(cmd, cmd.Flags().Arg(0))
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usageErrorf("%w", err)
	}
	name := unknown.GetSpecifiedName()
	switch {
	case unknown.GetSpecifiedShortnames() != "":
		return usageErrorf("unknown flag -%s", name)
	case word.MatchString(name):
		return usageErrorf("unknown flag --%s", name)
	}
	return usageErrorf("unknown flag")
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
				return usageErrorf("%w", err)
			}
			if len(rest) > 0 {
				return unknownCommand(cmd, rest[0])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

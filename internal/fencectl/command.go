package fencectl

import (
	_ "embed"
	"errors"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/internal/cli"
)

//go:embed help.txt
var help string

// newCommand returns a command as its section of help.txt describes it: after the path its arguments, in capitals,
// below that a sentence, for lists of commands too, and the rest of the page.
func newCommand(path string, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: path[strings.LastIndex(path, " ")+1:], RunE: run}
	for section := range strings.SplitSeq(help[len("# "):], "\n# ") {
		heading, text, _ := strings.Cut(section, "\n")
		arguments, found := strings.CutPrefix(heading+" ", path+" ")
		if !found {
			continue
		}
		words := strings.Fields(arguments)
		end := slices.IndexFunc(words, func(word string) bool { return strings.ToUpper(word) != word || strings.Contains(word, "-") })
		cmd.Use, cmd.Args = strings.TrimSpace(cmd.Use+" "+arguments), cli.Args(words[:max(end, 0)]...)
		cmd.Short, cmd.Long, _ = strings.Cut(strings.TrimSpace(text), "\n\n")
		cmd.Long = cmd.Short + ".\n\n" + cmd.Long
		return cmd
	}
	panic("help.txt has no command " + path)
}

func requireFlags(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		_ = cmd.MarkFlagRequired(name) // it fails for an unknown flag only
	}
}

// connection is the flags that say how to reach servers.
type connection interface {
	register(*pflag.FlagSet)
	// validate is called once the flags have their values, and before the command.
	validate(cmd *cobra.Command, args []string) error
}

// connected gives a command, and those below it, the flags of a connection.
func connected(c connection, cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.register(cmd.PersistentFlags())
	cmd.PersistentPreRunE = c.validate
	cmd.AddCommand(below...)
	return cmd
}

func operator() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

func matching(pattern string) string {
	if pattern == "" {
		return ""
	}
	return " matches " + strconv.Quote(pattern)
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

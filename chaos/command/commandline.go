package command

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandLine is the command with the flags that were given, and always its seed.
func commandLine(cmd *cobra.Command) string {
	words := []string{cmd.CommandPath()}
	cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		given := flag.Changed || flag.Name == "seed"
		if !given || flag.Name == "out" || flag.Name == "resume" || flag.Name == "junit" {
			return
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			words = append(words, "--"+flag.Name, quoted(value))
		}
	})
	return strings.Join(words, " ")
}

// quoted is a word quoted for a shell.
func quoted(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

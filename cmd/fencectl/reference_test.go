package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
)

const referenceFile = "../../docs/fencectl.md"

var writeReference = flag.Bool("write-reference", false, "write docs/fencectl.md anew")

// docs/fencectl.md says what the commands say of themselves.
func TestReference_IsThatOfTheCommands(t *testing.T) {
	t.Parallel()
	want := reference(t)
	if *writeReference {
		require.NoError(t, os.WriteFile(referenceFile, []byte(want), 0o644))
	}
	got, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run: go test ./cmd/fencectl -run TestReference -write-reference")
}

func reference(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	root := newRoot()
	b.WriteString("# fencectl\n\n" +
		"Made of the commands' own help: `go test ./cmd/fencectl -run TestReference -write-reference`. The commands of `fencectl chaos` are in\n" +
		"[chaos](../chaos/README.md).\n\n")
	for _, cmd := range inOrder(root) {
		if cmd.Name() == "help" || cmd.Name() == "chaos" {
			continue
		}
		fmt.Fprintf(&b, "%s %s\n\n", strings.Repeat("#", 2+min(depth(cmd), 1)), cmd.CommandPath())
		fmt.Fprintf(&b, "```text\n%s```\n\n", helpOf(t, cmd))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// inOrder returns a command and those below it.
func inOrder(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, below := range cmd.Commands() {
		all = append(all, inOrder(below)...)
	}
	return all
}

// depth is 0 for the root and for groups of commands.
func depth(cmd *cobra.Command) int {
	if !cmd.HasParent() || cmd.HasSubCommands() {
		return 0
	}
	return 1
}

// helpOf returns the help of a command. Global flags, which a group has too, are left out.
func helpOf(t *testing.T, cmd *cobra.Command) string {
	t.Helper()
	args := append(strings.Fields(strings.TrimPrefix(cmd.CommandPath(), "fencectl")), "--help")
	help := fencectl(t, args...)
	require.Equal(t, cli.ExitOK, help.Code, help.Stderr)
	for line := range strings.Lines(help.Stdout) {
		require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 80, line)
	}
	if text, _, cut := strings.Cut(help.Stdout, "\nGlobal flags:\n"); cut && !cmd.HasSubCommands() {
		return text
	}
	return cmp.Or(help.Stdout, "\n")
}

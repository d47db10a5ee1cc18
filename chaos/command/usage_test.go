package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli/clitest"
)

func TestUsage_Is64WithAHint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  string // separated by blanks
		says  string
		hints string
	}{
		{"", "which command? fencectl chaos has compare, list, run, verify", "fencectl chaos"},
		{"list nonsense", "want scenarios, groups or faults", "fencectl chaos list"},
		{"list groups faults", "one of scenarios, groups or faults", "fencectl chaos list"},
		{"run extra", "no arguments", "fencectl chaos run"},
		{"run --seeds 0", "--seeds is 0, want at least 1", "fencectl chaos run"},
		{"run --script-seeds 0", "--script-seeds is 0, want at least 1", "fencectl chaos run"},
		{"run --parallel 0", "--parallel is 0, want at least 1", "fencectl chaos run"},
		{"run --seed 0", "--seed is 0, want at least 1", "fencectl chaos run"},
		{"run --duration -1s", "--duration is -1s, want more than 0", "fencectl chaos run"},
		{"run --seeds 2 --duration 1m", "--duration and --seeds exclude each other", "fencectl chaos run"},
		{"run --resume", "--resume needs --out", "fencectl chaos run"},
		{"run --out=", "--out is empty", "fencectl chaos run"},
		{"run --scenario pauses,nonsense", "\"nonsense\" matches none of the scenarios", "fencectl chaos run"},
		{"run --scenario= --groups nonsense", "--scenario is empty", "fencectl chaos run"},
		{"run --groups= --scenario nonsense", "--groups is empty", "fencectl chaos run"},
		{"run --junit /nonexistent/j.xml --scenario nonsense", "--junit: open /nonexistent/j.xml", "fencectl chaos run"},
		{"run --junit= --scenario nonsense", "--junit is empty", "fencectl chaos run"},
		{"run --out /dev/null/none --scenario nonsense", "\"nonsense\" matches none", "fencectl chaos run"},
		{"verify", "the directory of a suite", "fencectl chaos verify"},
		{"verify /nonexistent", "holds no suite", "fencectl chaos verify"},
		{"compare one", "the directories of two suites", "fencectl chaos compare"},
		{"compare /nonexistent /nonexistent", "holds no suite", "fencectl chaos compare"},
		{"help nonsense", `no command "nonsense"`, "fencectl chaos help"},
	} {
		clitest.RequireUsageError(t, newRoot(), c.args, c.says, c.hints)
	}
}

func TestHelp_OfEachCommand(t *testing.T) {
	t.Parallel()
	for command, says := range map[string]string{
		"":        "Commands:",
		"list":    "fencectl chaos list [scenarios|groups|faults] [flags]",
		"run":     "1  a property was violated under Fencekit",
		"verify":  "It changes no file.",
		"compare": "fencectl chaos compare DIR DIR [flags]",
	} {
		require.Contains(t, clitest.RequireHelp(t, newRoot, command, says), "--output")
	}
}

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	testserver "github.com/fencekit/fencekit/internal/test/testenv/process"
)

// sharedFencectl is a directory that has the program fencectl.
var sharedFencectl = testserver.Shared(func(ctx context.Context) (*testserver.Dir, error) {
	dir, err := testserver.NewDir()
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(context.WithoutCancel(ctx), "go", "build", "-o", dir.Path("fencectl"), "../../../cmd/fencectl").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("building fencectl: %w\n%s", err, out)
	}
	return dir, nil
})

// runbook is the commands of the sections of docs/runbook.md, which a test runs one after
// another: all commands of a section, and no others.
type runbook struct {
	t        *testing.T
	section  string
	commands []string // those that are left
	dir      string
	env      []string
}

// newRunbook opens the section of what comes before a restore, and follows it up to its last
// anchor.
func newRunbook(t *testing.T, etcd, dsn string) *runbook {
	t.Helper()
	built, err := sharedFencectl()
	require.NoError(t, err)
	b := &runbook{t: t, dir: t.TempDir(), env: append(testserver.Environ("FENCEKIT_", "PG"),
		"PATH="+built.Path("")+":"+os.Getenv("PATH"), "FENCEKIT_ETCD_PREFIX="+t.Name(), "FENCEKIT_ETCD_ENDPOINTS="+etcd, "FENCEKIT_DATABASE_URL="+dsn)}
	b.open("Before anything happens")
	b.next("export FENCEKIT_ETCD_ENDPOINTS=")
	b.next("export FENCEKIT_DATABASE_URL=")
	b.run(0, "fencectl audit keygen")
	b.run(0, "fencectl audit anchor")
	return b
}

var commandLine = regexp.MustCompile(`(?m)^    (\S.*?)(?: +# .*)?$`)

// open turns to a section.
func (b *runbook) open(heading string) {
	b.t.Helper()
	b.done()
	text, err := os.ReadFile("../../../docs/runbook.md")
	require.NoError(b.t, err)
	_, section, found := strings.Cut(string(text), "\n### "+heading+"\n")
	require.True(b.t, found, heading)
	b.section, _, _ = strings.Cut(section, "\n##")
	for _, match := range commandLine.FindAllStringSubmatch(b.section, -1) {
		b.commands = append(b.commands, match[1])
	}
	require.NotEmpty(b.t, b.commands)
}

func (b *runbook) done() {
	b.t.Helper()
	require.Empty(b.t, b.commands, "commands of the guide that were not run")
}

// next takes the next command, which begins with prefix.
func (b *runbook) next(prefix string) string {
	b.t.Helper()
	require.NotEmpty(b.t, b.commands, "the guide has no further command, want %s", prefix)
	command := b.commands[0]
	require.True(b.t, strings.HasPrefix(command, prefix), "the guide has %q, want %s", command, prefix)
	b.commands = b.commands[1:]
	return command
}

// run runs the next command and returns what it said.
func (b *runbook) run(code int, prefix string) string {
	b.t.Helper()
	command := b.next(prefix)
	cmd := exec.CommandContext(b.t.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env = b.dir, b.env
	out, err := cmd.CombinedOutput()
	require.NotNil(b.t, cmd.ProcessState, "%s: %v", command, err)
	require.Equal(b.t, code, cmd.ProcessState.ExitCode(), "%s\n%s", command, out)
	return string(out)
}

// instead does what the next command stands for.
func (b *runbook) instead(prefix string, do func() error) {
	b.t.Helper()
	b.next(prefix)
	require.NoError(b.t, do())
}

// setenv replaces a variable: of several the last counts.
func (b *runbook) setenv(name, value string) { b.env = append(b.env, name+"="+value) }

// names requires that the section names a reason that services show.
func (b *runbook) names(reason string) {
	b.t.Helper()
	require.Contains(b.t, b.section, "`"+reason+"`")
}

// lines reads a file that the commands have written.
func (b *runbook) lines(file string) []string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, file))
	require.NoError(b.t, err)
	return strings.Fields(string(text))
}

func (b *runbook) writeFile(file string, lines []string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, file), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

// Package deploy tests the files of the directory deploy, and the commands of docs/operate.md.
package deploy

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// root is the module's.
const root = "../../.."

// output runs a command and returns its standard output.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	require.NoError(t, cmd.Run(), "%s\n%s%s", cmd, out.String(), log.String())
	return out.String()
}

// built builds a command of the module, and returns its path.
func built(t *testing.T, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, "./"+pkg)
	build.Dir = root
	output(t, build)
	return path
}

// patient bounds what a busy machine may take long for.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

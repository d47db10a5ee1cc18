package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// root is the module's.
const root = "../.."

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

// deduct takes one from the stock over HTTP.
func deduct(t *testing.T, base string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/skus/lamp-7/deduct", bytes.NewReader([]byte(`{"qty": 1}`)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", t.Name())
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var deducted struct {
		Qty, Available int
	}
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&deducted))
	require.Equal(t, 1, deducted.Qty)
	require.Equal(t, 99, deducted.Available)
}

// patient bounds what a busy machine may take long for.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

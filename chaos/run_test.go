package chaos_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

// The shortest parts of what "make chaos" does: a script with controls that break, each await
// of an operation, and random faults.
func TestRun_FencedHoldsWhereControlsBreak(t *testing.T) {
	t.Parallel()
	chaos.Test(t, chaos.Config{
		Scenarios: []string{"stalled-holder"},
		Groups:    []string{result.Fenced, "no-lock", "etcd-mutex", "token-compare"},
	})
}

func TestRun_ALeaseThatEndsAnywhereIsHarmless(t *testing.T) {
	t.Parallel()
	chaos.Test(t, chaos.Config{Scenarios: []string{"expiry-at-every-await"}})
}

func TestRun_RandomFaultsAreHarmless(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chaos.Test(t, chaos.Config{Scenarios: []string{"unknown-commits"}, Dir: dir})
	require.FileExists(t, filepath.Join(dir, result.ReportFile))
	require.Equal(t, map[string]string{"w0": "bulk/1", "w1": "bulk/2", "w2": "bulk/3"}, firstSlow(t, dir))
}

// firstSlow returns the first slow resource of each worker in a suite's only run.
func firstSlow(t *testing.T, dir string) map[string]string {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "*", result.HistoryFile))
	require.NoError(t, err)
	require.Len(t, files, 1)
	file, err := os.Open(files[0])
	require.NoError(t, err)
	defer file.Close()
	first := map[string]string{}
	require.NoError(t, history.Read(file, func(e history.Event) error {
		if e.Kind == history.Invoke && strings.HasPrefix(e.Resources[0], "bulk/") && first[e.Process] == "" {
			first[e.Process] = e.Resources[0]
		}
		return nil
	}))
	return first
}

// Scripts without faults of servers.
func TestRun_ForgersWaitersAndUsersAreHarmless(t *testing.T) {
	t.Parallel()
	chaos.Test(t, chaos.Config{Scenarios: []string{"forged-tokens", "late-commit", "abandoned-waiter", "user-code"}})
}

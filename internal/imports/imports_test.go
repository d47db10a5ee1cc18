package imports

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/fencekit/fencekit/"

// dependencies returns what a package needs, itself included, but for the
// standard library.
func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+pkg)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	deps := strings.Fields(string(out))
	require.Contains(t, deps, module+pkg)
	return deps
}

// The core imports the standard library and itself only.
func TestImports_CoreNeedsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	for pkg, allowed := range map[string][]string{
		"fence":           {"fence"},
		"storage":         {"fence", "storage"},
		"guard":           {"fence", "guard", "storage", "internal/callback"},
		"guard/guardtest": {"fence", "guard", "guard/guardtest", "storage", "internal/callback"},
		"storage/memory":  {"fence", "storage", "storage/memory"},
	} {
		for _, dep := range dependencies(t, pkg) {
			require.Contains(t, allowed, strings.TrimPrefix(dep, module), "%s depends on %s", pkg, dep)
		}
	}
}

// A store links no lock service, a lock service no driver, and neither what only
// tests need.
func TestImports_AdaptersKeepApart(t *testing.T) {
	t.Parallel()
	tests := []string{"github.com/stretchr/testify", "github.com/ory/dockertest", "pgregory.net/rapid", "go.uber.org/goleak", module + "internal/testenv", module + "guard/guardtest"}
	for pkg, forbidden := range map[string][]string{
		"storage/postgres": append([]string{"go.etcd.io/", "google.golang.org/grpc", module + "fence/etcd", module + "guard"}, tests...),
		"cmd/fencectl":     append([]string{"go.etcd.io/", "google.golang.org/grpc", module + "chaos"}, tests...),
		"fence/etcd":       append([]string{"github.com/jackc/", module + "guard", module + "storage", "go.etcd.io/etcd/server", "go.etcd.io/etcd/etcdutl"}, tests...),
	} {
		for _, dep := range dependencies(t, pkg) {
			for _, prefix := range forbidden {
				require.False(t, strings.HasPrefix(dep, prefix), "%s depends on %s", pkg, dep)
			}
		}
	}
}

// The rooms of the lock service depend on each other in one way: what keeps sessions
// and what watches queues know nothing of positions in queues, nor of the Locker.
func TestImports_TheLockServiceDependsInOneWay(t *testing.T) {
	t.Parallel()
	rooms := "fence/etcd/internal/"
	for room, allowed := range map[string][]string{
		"background": {},
		"keys":       {},
		"cluster":    {"background", "keys"},
		"session":    {"background", "keys", "cluster"},
		"watch":      {"background", "keys", "cluster"},
		"queue":      {"background", "keys", "cluster", "session", "watch"},
	} {
		for _, dep := range dependencies(t, rooms+room) {
			own, ok := strings.CutPrefix(dep, module)
			if !ok || own == rooms+room || own == "fence" {
				continue
			}
			require.Contains(t, allowed, strings.TrimPrefix(own, rooms), "%s depends on %s", room, own)
		}
	}
}

package imports

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/fencekit/fencekit/"

// pkg is a package of this module, and what it needs outside of the standard library.
type pkg struct {
	path          string
	imports, deps []string
}

var packages = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}}|{{join .Imports " "}}|{{join .Deps " "}}`, "./...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	var all []pkg
	for line := range strings.Lines(string(out)) {
		part := strings.Split(line, "|")
		outside := func(list string) []string {
			return slices.DeleteFunc(strings.Fields(list), func(path string) bool {
				first, _, _ := strings.Cut(path, "/")
				return !strings.Contains(first, ".")
			})
		}
		all = append(all, pkg{part[0], outside(part[1]), outside(part[2])})
	}
	return all, err
})

func list(t *testing.T) []pkg {
	t.Helper()
	all, err := packages()
	require.NoError(t, err)
	return all
}

// dependencies returns what a package needs, itself included, but for the standard library.
func dependencies(t *testing.T, name string) []string {
	t.Helper()
	path := strings.TrimSuffix(module+name, "/")
	all := list(t)
	i := slices.IndexFunc(all, func(p pkg) bool { return p.path == path })
	require.GreaterOrEqual(t, i, 0, path)
	return append(slices.Clone(all[i].deps), path)
}

// workshop reports whether a package is for tests, demonstrations and measurements.
func workshop(path string) bool {
	name := strings.TrimPrefix(path, module)
	return slices.ContainsFunc([]string{"chaos", "cmd/fencectl-chaos", "examples/", "internal/test", "fence/internal/keylock/servicetest", "fence/etcd/internal/etcdtest"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// What services import and operators run needs nothing of the workshop.
func TestImports_TheProductNeedsNoneOfTheWorkshop(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		for _, dep := range p.deps {
			require.False(t, workshop(dep) && !workshop(p.path), "%s depends on %s", p.path, dep)
		}
	}
}

// The core imports the standard library and itself only.
func TestImports_CoreNeedsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	for pkg, allowed := range map[string][]string{
		"fence":           {"fence"},
		"storage":         {"fence", "storage"},
		"guard":           {"fence", "guard", "storage", "internal/callback"},
		"guard/guardtest": {"fence", "guard", "guard/guardtest", "storage", "storage/memory", "internal/callback"},
		"guardhttp":       {"fence", "guard", "guardhttp", "storage", "internal/callback", "internal/transport"},
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
	tests := []string{"github.com/stretchr/testify", "github.com/ory/dockertest", "pgregory.net/rapid", "go.uber.org/goleak", module + "guard/guardtest"}
	for pkg, forbidden := range map[string][]string{
		"":                 append([]string{module + "storage/postgres/patroni"}, tests...),
		"storage/postgres": append([]string{"go.etcd.io/", "google.golang.org/grpc", module + "fence/etcd", module + "guard"}, tests...),
		"cmd/fencectl":     append([]string{"go.etcd.io/etcd/server", "go.etcd.io/etcd/etcdutl"}, tests...),
		"guardsql":         append([]string{"go.etcd.io/", "google.golang.org/grpc", "github.com/jackc/pgx/v5/pgxpool", "github.com/jackc/pgx/v5/stdlib", module + "fence", module + "storage", module + "internal"}, tests...),
		"guardgrpc":        append([]string{"go.etcd.io/", "github.com/jackc/", module + "fence/etcd", module + "storage/", module + "guardhttp"}, tests...),
		"guardprometheus":  append([]string{"go.opentelemetry.io/", "go.etcd.io/", "google.golang.org/grpc", "github.com/jackc/", module + "fence/etcd", module + "storage/", module + "guardotel"}, tests...),
		"guardotel":        append([]string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/prometheus/", "go.etcd.io/", "google.golang.org/grpc", "github.com/jackc/", module + "fence/etcd", module + "storage/", module + "guardprometheus"}, tests...),
		"fence/etcd":       append([]string{"github.com/jackc/", module + "guard", module + "storage", "go.etcd.io/etcd/server", "go.etcd.io/etcd/etcdutl"}, tests...),
		"fence/pglock":     append([]string{"go.etcd.io/", "google.golang.org/grpc", module + "fence/etcd", module + "guard", module + "storage"}, tests...),
		"internal/epoch":   append([]string{module + "guard", module + "storage/", module + "cmd", "go.etcd.io/etcd/server", "go.etcd.io/etcd/etcdutl"}, tests...),

		"storage/postgres/patroni": append([]string{module + "fence/etcd", module + "fence/pglock", module + "guard", "go.etcd.io/etcd/server", "go.etcd.io/etcd/etcdutl"}, tests...),
	} {
		for _, dep := range dependencies(t, pkg) {
			for _, prefix := range forbidden {
				require.False(t, strings.HasPrefix(dep, prefix), "%s depends on %s", pkg, dep)
			}
		}
	}
}

// Who has the locks in the database links its driver, and no client of another lock service.
func TestImports_TheFrontDoorNeedsTheDriverOnly(t *testing.T) {
	t.Parallel()
	outside := slices.DeleteFunc(dependencies(t, ""), func(dep string) bool { return strings.HasPrefix(dep+"/", module) })
	require.LessOrEqual(t, len(outside), 45)
	for _, dep := range outside {
		driver := strings.HasPrefix(dep, "github.com/jackc/") || strings.HasPrefix(dep, "golang.org/x/sync/") || strings.HasPrefix(dep, "golang.org/x/text/")
		require.True(t, driver, dep)
	}
	require.NotContains(t, dependencies(t, ""), module+"fence/etcd")
	required, err := os.ReadFile("../../../go.mod") // all of them are in the user's list of modules
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(required), " v"), 55)
}

// Docker is reached by its command: a client of it would double what "make demo" compiles. etcd is a program of
// its own: linking it into every test takes longer than most of them.
func TestImports_WhatStartsServersLinksNone(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"chaos", "cmd/fencectl-chaos", "examples/inventory", "examples/quickstart/servers", "internal/test/testenv"} {
		for _, dep := range dependencies(t, pkg) {
			require.NotContains(t, dep, "docker", pkg)
			require.False(t, strings.HasPrefix(dep, "go.etcd.io/etcd/server") || strings.HasPrefix(dep, "go.etcd.io/etcd/etcdutl"), "%s depends on %s", pkg, dep)
		}
	}
}

// A service that exports no metrics and no traces links nothing that does.
func TestImports_NothingButTheAdaptersNeedsAnExporter(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"", "guard", "guardhttp", "guardgrpc", "fence/etcd", "storage/postgres", "cmd/fencectl"} {
		for _, dep := range dependencies(t, pkg) {
			for _, prefix := range []string{"github.com/prometheus/", "go.opentelemetry.io/", module + "internal/telemetry", module + "guardprometheus", module + "guardotel"} {
				require.False(t, strings.HasPrefix(dep, prefix), "%s depends on %s", pkg, dep)
			}
		}
	}
}

// The front door is for users: what the library, chaos and internal tests are made of
// imports its parts. Package jobs is for users too, and takes their Guard.
func TestImports_OnlyProgramsUseTheFrontDoor(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		importer := strings.TrimPrefix(p.path, module)
		program := strings.HasPrefix(importer, "examples/") || strings.HasPrefix(importer, "cmd/") || importer == "jobs"
		if slices.Contains(p.imports, strings.TrimSuffix(module, "/")) && !program {
			t.Errorf("%s imports the root package", importer)
		}
	}
}

// What users copy needs nothing that they can't import. What starts servers for an example is
// not to be copied.
func TestImports_ExamplesUseWhatIsExported(t *testing.T) {
	t.Parallel()
	startsServers := []string{"examples/inventory", "examples/inventory/demo", "examples/quickstart/servers"}
	copied := 0
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.path, module)
		if !strings.HasPrefix(name, "examples/") || slices.Contains(startsServers, name) {
			continue
		}
		copied++
		for _, imported := range p.imports {
			require.False(t, strings.HasPrefix(imported, module) && strings.Contains(imported, "/internal/"), "%s imports %s", name, imported)
			require.NotContains(t, startsServers, strings.TrimPrefix(imported, module), name)
		}
	}
	require.Greater(t, copied, 3)
}

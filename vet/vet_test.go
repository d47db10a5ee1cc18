package vet_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golangci/plugin-module-register/register"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/fencekit/fencekit/vet"
	_ "github.com/fencekit/fencekit/vet/golangci"
)

// The cases are a module of their own: this one must not replace another, or go install refuses its versions. shop,
// worker and leader are services in which nothing is found.
func TestAnalyzer_FindsTheCases(t *testing.T) {
	t.Parallel()
	build := exec.Command("go", "build", "./...") // downloads what analysistest doesn't
	build.Dir = "testdata/src"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	analysistest.Run(t, "testdata/src", vet.Analyzer, "./...")
}

// Nothing is found in the examples, in the code of the guides and in guardtest, but for the mistakes that are planted.
func TestAnalyzer_FindsPlantedMistakesOnly(t *testing.T) {
	t.Parallel()
	found := append(findings(t, "..", ".", "./examples/...", "./guard/guardtest"), findings(t, "../examples/orm", ".")...)
	require.ElementsMatch(t, []string{
		"mistakes_test.go stale",  // reads early
		"mistakes_test.go handle", // writes through the pool
		"fenced_test.go context",  // what RequireFenced is tested with
		"fenced_test.go dropped",
		"simulate_test.go context", // and Simulate
		"simulate_test.go dropped",
	}, found)
}

func TestCommand_RunsForGoVet(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "fencekit-vet")
	out, err := exec.Command("go", "build", "-o", tool, "./cmd/fencekit-vet").CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := exec.Command("go", "vet", "-vettool="+tool, "./dropped", "./worker")
	run.Dir = "testdata/src"
	out, err = run.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 7, strings.Count(string(out), "is dropped"), "%s", out)
	require.NotContains(t, string(out), "worker.go")
}

func TestPlugin_HasTheAnalyzer(t *testing.T) {
	t.Parallel()
	plugin, err := register.GetPlugin("fencekit")
	require.NoError(t, err)
	of, err := plugin(nil)
	require.NoError(t, err)
	analyzers, err := of.BuildAnalyzers()
	require.NoError(t, err)
	require.Equal(t, []*analysis.Analyzer{vet.Analyzer}, analyzers)
	require.Equal(t, register.LoadModeTypesInfo, of.GetLoadMode())
}

func findings(t *testing.T, dir string, patterns ...string) (found []string) {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax | packages.NeedModule, Dir: dir, Tests: true}, patterns...)
	require.NoError(t, err)
	require.Zero(t, packages.PrintErrors(pkgs))
	graph, err := checker.Analyze([]*analysis.Analyzer{vet.Analyzer}, pkgs, nil)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, action := range graph.Roots {
		require.NoError(t, action.Err)
		for _, d := range action.Diagnostics {
			at := action.Package.Fset.Position(d.Pos)
			if !seen[at.String()] { // a package is also there as its test's
				found = append(found, filepath.Base(at.Filename)+" "+d.Category)
			}
			seen[at.String()] = true
		}
	}
	return found
}

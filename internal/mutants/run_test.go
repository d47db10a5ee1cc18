package mutants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// module is a module to break.
var module = map[string]string{
	"go.mod":       "module example.org/sum\n\ngo 1.24\n",
	"sum/unit.sql": "1",
	"sum/sum.go": `package sum

import _ "embed"

//go:embed unit.sql
var unit string

func Sum(a, b int) int { return a + b }
`,
	"sum/sum_test.go": `package sum

import "testing"

func TestSum(t *testing.T) {
	if Sum(1, 2) != 3 {
		t.Error("wrong")
	}
	t.Run("of zero", func(t *testing.T) {
		if Sum(0, 0) != 0 {
			t.Error("wrong")
		}
	})
}

func TestUnit(t *testing.T) {
	if unit != "1" {
		t.Error("wrong")
	}
}

func TestMigrate_AppliesEachOnce(t *testing.T) {
	if unit != "1" && unit != "2" {
		t.Error("no SQL")
	}
}

func TestWrong(t *testing.T) { t.Error("always") }
`,
	"cmd/fencectl-chaos/main.go": `package main

import (
	"os"
	"path/filepath"
)

const verdict = "pass"

func main() {
	run := filepath.Join(os.Args[len(os.Args)-1], "any", "fenced", "seed-1")
	os.MkdirAll(run, 0o700)
	os.WriteFile(filepath.Join(run, "result.json"), []byte("{\"verdict\": \"" + verdict + "\"}"), 0o600)
}
`,
}

func newRunner(t *testing.T) Runner {
	root := t.TempDir()
	for file, text := range module {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
	}
	return Runner{Root: root, Timeout: time.Minute}
}

// A mutant is killed by the failure of its killer and by nothing else.
func TestRun_TellsWhoIsKilled(t *testing.T) {
	sum := func(new, killer string) Mutant {
		return change("m", "", "sum/sum.go", "return a + b", new, Test{"sum", killer})
	}
	r := newRunner(t)
	for name, c := range map[string]struct {
		mutant  Mutant
		killed  bool
		err     string
		endless bool
	}{
		"its killer fails":                    {mutant: sum("return a - b", "TestSum"), killed: true},
		"its killer is a subtest that fails":  {mutant: sum("return a + b + 1", "TestSum/of_zero"), killed: true},
		"its killer is a subtest that passes": {mutant: sum("return a - b", "TestSum/of_zero")},
		"it makes no difference":              {mutant: sum("return b + a", "TestSum")},
		"it is in a migration":                {mutant: change("m", "", "sum/unit.sql", "1", "2", Test{"sum", "TestUnit"}), killed: true},
		"it takes two edits":                  {mutant: sum("return a - b", "TestUnit").and(Edit{"sum/unit.sql", "1", "2"}), killed: true},
		"it does not compile":                 {mutant: sum("return c", "TestSum"), err: "does not compile"},
		"it never ends":                       {mutant: sum("for { a++ }", "TestSum"), err: "ran out of time", endless: true},
		"it ends the process":                 {mutant: sum("if a == 1 { println(unit); os.Exit(3) }; return a + b", "TestSum").and(Edit{"sum/sum.go", `import _ "embed"`, "import (\n_ \"embed\"\n\"os\"\n)"}), err: "neither passed nor failed"},
		"it does not migrate":                 {mutant: change("m", "", "sum/unit.sql", "1", "x", Test{"sum", "TestUnit"}), err: "does not migrate"},
		"its killer is not there":             {mutant: sum("return a - b", "TestGone"), err: "neither passed nor failed"},
		"its text is not there":               {mutant: change("m", "", "sum/sum.go", "return c", "", Test{"sum", "TestSum"}), err: "0 times, want once"},
		"its text is there twice":             {mutant: change("m", "", "sum/sum.go", "embed", "", Test{"sum", "TestSum"}), err: "2 times, want once"},
	} {
		t.Run(name, func(t *testing.T) {
			r := r
			if c.endless {
				r.Timeout = 3 * time.Second
			}
			result := r.Run(t.Context(), c.mutant)
			if c.err != "" {
				require.ErrorContains(t, result.Err, c.err)
				require.False(t, result.AsExpected())
				return
			}
			require.NoError(t, result.Err)
			require.Equal(t, c.killed, result.Killed)
			require.Equal(t, c.killed, result.AsExpected())
			result.Mutant.Survives = "why"
			require.Equal(t, !c.killed, result.AsExpected())
		})
	}
	source, err := os.ReadFile(filepath.Join(r.Root, "sum", "sum.go"))
	require.NoError(t, err)
	require.Equal(t, module["sum/sum.go"], string(source), "the tree is not touched")
}

// What fails without a mutant shows nothing when it fails with one.
func TestBaseline_WantsEveryKillerToPass(t *testing.T) {
	r := newRunner(t)
	killedBy := func(names ...string) (all []Mutant) {
		for _, name := range names {
			all = append(all, Mutant{Killer: Test{"sum", name}})
		}
		return all
	}
	require.NoError(t, r.Baseline(t.Context(), killedBy("TestSum", "TestSum/of_zero", "TestUnit")))
	for _, name := range []string{"TestWrong", "TestGone", "TestSum/gone"} {
		require.ErrorContains(t, r.Baseline(t.Context(), killedBy("TestUnit", name)), "sum "+name+" does not pass without a mutant")
	}
}

// A mutant that names a scenario is as expected if that is violated, and passes without
// a mutant.
func TestRun_WantsTheScenarioViolated(t *testing.T) {
	r := newRunner(t)
	of := func(verdict string) Mutant {
		return change("m", "", "sum/sum.go", "return a + b", "return a - b", Test{"sum", "TestSum"}).
			and(Edit{"cmd/fencectl-chaos/main.go", `verdict = "pass"`, `verdict = "` + verdict + `" // as judged`}).violates("any")
	}
	require.NoError(t, r.Baseline(t.Context(), []Mutant{of("violated")}))
	for verdict, expected := range map[string]bool{"violated": true, "inconclusive": false, "pass": false} {
		result := r.Run(t.Context(), of(verdict))
		require.NoError(t, result.Err)
		require.True(t, result.Killed)
		require.Equal(t, expected, result.Violated)
		require.Equal(t, expected, result.AsExpected())
		require.Contains(t, result.Reason, verdict)
	}
	require.Error(t, r.Run(t.Context(), of("no verdict")).Err)
	spoiled := module["cmd/fencectl-chaos/main.go"]
	require.NoError(t, os.WriteFile(filepath.Join(r.Root, "cmd/fencectl-chaos/main.go"), []byte(strings.Replace(spoiled, `"pass"`, `"inconclusive"`, 1)), 0o600))
	require.ErrorContains(t, r.Baseline(t.Context(), []Mutant{of("violated")}), "scenario any does not pass without a mutant: inconclusive")
}

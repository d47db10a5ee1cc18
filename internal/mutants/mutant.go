package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one way to break Fencekit.
type Mutant struct {
	Name   string
	Breaks string // invariants and hazards, as docs/verification.md names them
	Edits  []Edit
	Killer Test
	// Survives is why Killer can't notice; "" if it has to.
	Survives string
	// Scenario is one of the chaos suite's that has to be violated, too; "" if none
	// need be.
	Scenario string
}

// Edit replaces a text that occurs exactly once in a file.
type Edit struct {
	File string // from the module's root, with slashes
	Old  string
	New  string
}

// Test is a test, or a subtest, of a package.
type Test struct {
	Package string // from the module's root, with slashes
	Name    string
}

// Function is the test's function.
func (t Test) Function() string {
	function, _, _ := strings.Cut(t.Name, "/")
	return function
}

func (t Test) String() string { return t.Package + " " + t.Name }

// All returns the mutants of Fencekit.
func All() []Mutant {
	return slices.Concat(scheduleMutants, sealMutants, readOnlyMutants, evictMutants, claimMutants, schemaMutants, retentionMutants, protectMutants, verifyMutants, trustMutants, storeMutants, commitMutants, messageMutants, batchMutants, txMutants, connectionMutants, guardMutants, groupMutants, guardBatchMutants, keeperMutants, callbackMutants, standingMutants, transportMutants, guardtestMutants,
		frontMutants, shardMutants, execMutants, etcdMutants, lineMutants, keysMutants, sessionMutants, watchMutants, contentionMutants, memoryMutants, engineMutants, checkMutants, verdictMutants, readMutants, reviewMutants, anchorMutants, contractMutants)
}

// change is a mutant of one edit.
func change(name, breaks, file, old, new string, killer Test) Mutant {
	return Mutant{Name: name, Breaks: breaks, Edits: []Edit{{file, old, new}}, Killer: killer}
}

// survives says why a mutant does.
func (m Mutant) survives(why string) Mutant {
	m.Survives = why
	return m
}

// violates says which scenario notices as well.
func (m Mutant) violates(scenario string) Mutant {
	m.Scenario = scenario
	return m
}

// and takes the edits of others along.
func (m Mutant) and(edits ...Edit) Mutant {
	m.Edits = slices.Concat(m.Edits, edits)
	return m
}

func (m Mutant) changesSQL() bool {
	return slices.ContainsFunc(m.Edits, func(e Edit) bool { return strings.HasSuffix(e.File, ".sql") })
}

// Apply returns the changed text of each file that m edits, by the file's path from
// the root of the module in directory root.
func (m Mutant) Apply(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, e := range m.Edits {
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File)))
		if err != nil {
			return nil, fmt.Errorf("mutants: %s: %w", m.Name, err)
		}
		if n := strings.Count(string(source), e.Old); n != 1 {
			return nil, fmt.Errorf("mutants: %s: %s has the text to replace %d times, want once: %q", m.Name, e.File, n, e.Old)
		}
		if _, ok := changed[e.File]; !ok {
			changed[e.File] = string(source)
		}
		changed[e.File] = strings.Replace(changed[e.File], e.Old, e.New, 1)
	}
	return changed, nil
}

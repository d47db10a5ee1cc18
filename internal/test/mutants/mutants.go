// Package mutants breaks a line that an invariant rests on, one at a time, and runs the test that
// has to notice. The source tree is not touched: the go command gets the changed file as an overlay.
//
// A line is marked by a comment at its end, "mutant:" and the name of the mutant, or of several. So a
// mutant follows its line through every change, and is an error once the line is gone, the mutated
// code doesn't compile, or the killer passes.
package mutants

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Mutant replaces the line that carries its name.
type Mutant struct {
	Name    string
	Breaks  string // the invariants that rest on the line
	Package string // of the killer, from the module's root
	Killer  string // the test, or subtest, that has to fail
	Line    string // what the line becomes; may be empty, or several lines
}

// All returns the mutants of Fencekit.
func All() []Mutant { return slices.Concat(lockMutants, storeMutants, guardMutants) }

var marker = regexp.MustCompile(`(?m)^.* mutant: ([a-z0-9-]+(?:, [a-z0-9-]+)*)$`)

// marked is a marked line.
type marked struct{ file, line string }

// marks returns the marked lines of the module in directory root, by the names of their mutants.
func marks(root string) (map[string]marked, error) {
	found := map[string]marked{}
	for _, dir := range []string{"audit", "fence", "guard", "internal/wire", "storage"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(file string, _ fs.DirEntry, err error) error {
			if ext := filepath.Ext(file); err != nil || ext != ".go" && ext != ".sql" || strings.HasSuffix(file, "_test.go") {
				return err
			}
			text, err := os.ReadFile(file)
			for _, line := range marker.FindAllStringSubmatch(string(text), -1) {
				for name := range strings.SplitSeq(line[1], ", ") {
					if _, twice := found[name]; twice {
						return fmt.Errorf("mutants: two lines are marked with %s", name)
					}
					found[name] = marked{file, line[0]}
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Check returns an error unless each mutant has its line, and each marked line its mutants.
func Check(root string) error {
	lines, err := marks(root)
	if err != nil {
		return err
	}
	for _, m := range All() {
		if _, ok := lines[m.Name]; !ok {
			return fmt.Errorf("mutants: no line is marked with %s", m.Name)
		}
		delete(lines, m.Name)
	}
	for name, at := range lines {
		return fmt.Errorf("mutants: %s has a line marked with %s, which is no mutant", at.file, name)
	}
	return nil
}

// Overlay writes m's change of the module in directory root into directory dir, and returns the path of
// what "go build -overlay" takes, and whether SQL changes.
func (m Mutant) Overlay(root, dir string) (list string, sql bool, err error) {
	lines, err := marks(root)
	if err != nil {
		return "", false, err
	}
	at, ok := lines[m.Name]
	if !ok {
		return "", false, fmt.Errorf("mutants: no line is marked with %s", m.Name)
	}
	text, err := os.ReadFile(at.file)
	if err != nil {
		return "", false, err
	}
	changed := filepath.Join(dir, filepath.Base(at.file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), at.line+"\n", m.Line+"\n", 1)), 0o600); err != nil {
		return "", false, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{at.file: changed}})
	if err != nil {
		return "", false, err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, filepath.Ext(at.file) == ".sql", os.WriteFile(list, overlay, 0o600)
}

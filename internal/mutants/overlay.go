package mutants

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
)

// Overlay writes what m changes in the module of directory root into directory dir,
// and returns the path of what "go build -overlay" takes.
func (m Mutant) Overlay(root, dir string) (string, error) {
	changed, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	return overlay(root, dir, changed)
}

// overlay writes the texts of changed files, and the list of them that the go
// command takes, into directory dir. It returns the list's path.
func overlay(root, dir string, changed map[string]string) (string, error) {
	replace := map[string]string{}
	for file, text := range changed {
		copied := filepath.Join(dir, strconv.Itoa(len(replace))+filepath.Ext(file))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = copied
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

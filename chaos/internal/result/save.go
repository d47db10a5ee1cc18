package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// The files of a suite and of a run.
const (
	ResultFile   = "result.json"
	HistoryFile  = "history.jsonl"
	ObservedFile = "observed.json"
	ReportFile   = "report.html"
	JUnitFile    = "junit.xml"
)

// Save keeps a run below the suite's directory dir: a copy of its history, what
// was observed and the run itself, written last, so that a directory that has it
// is complete. A history that is in its place already stays as it is. It fails with
// fs.ErrExist if that run is there already: what was seen is never overwritten.
func Save(dir string, run *Run, historyPath string, observed *observe.Observation) error {
	at, err := runDir(dir, run)
	if err != nil {
		return err
	}
	last := filepath.Join(at, ResultFile)
	if _, err := os.Lstat(last); err == nil {
		return fmt.Errorf("result: run %s was saved before: %w", run.Dir, fs.ErrExist)
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if err := copyFile(filepath.Join(at, HistoryFile), historyPath); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(at, ObservedFile), observed); err != nil {
		return err
	}
	return writeJSON(last, run)
}

// SaveSuite writes the suite's own file. It replaces an earlier one in one step.
func SaveSuite(dir string, suite *Suite) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return writeJSON(filepath.Join(dir, ResultFile), suite)
}

// runDir is where a run's files are. A Dir that leads out of the suite's is rejected.
func runDir(dir string, run *Run) (string, error) {
	if run.Dir == "." || !filepath.IsLocal(filepath.FromSlash(run.Dir)) {
		return "", fmt.Errorf("result: %q is no directory below the suite's", run.Dir)
	}
	return filepath.Join(dir, filepath.FromSlash(run.Dir)), nil
}

// copyFile copies a file, unless it is in its place already.
func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("result: a run's history: %w", err)
	}
	defer func() { _ = in.Close() }()
	if same(in, to) {
		return nil
	}
	out, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return nil
}

func same(file *os.File, path string) bool {
	is, err := file.Stat()
	there, missing := os.Stat(path)
	return err == nil && missing == nil && os.SameFile(is, there)
}

// writeJSON writes a file in one step: it is there whole, or as it was.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return nil
}

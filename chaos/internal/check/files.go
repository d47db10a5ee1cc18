package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// A suite is a directory with result.json (the Suite) and report.html, and with a directory for
// each run, three levels below (Run.Dir): history.jsonl, observed.json, and result.json (the Run),
// which is written last: a run that has it is complete.
const (
	ResultFile   = "result.json"
	HistoryFile  = "history.jsonl"
	ReportFile   = "report.html"
	observedFile = "observed.json"
)

// Save keeps a run below the suite's directory dir, beside its history.
func Save(dir string, run *Run, observed *observe.Observation) error {
	at := filepath.Join(dir, filepath.FromSlash(run.Dir))
	if err := writeJSON(filepath.Join(at, observedFile), observed); err != nil {
		return err
	}
	return writeJSON(filepath.Join(at, ResultFile), run)
}

// SaveSuite writes the suite's own file. It replaces an earlier one in one step.
func SaveSuite(dir string, suite *Suite) error {
	return writeJSON(filepath.Join(dir, ResultFile), suite)
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", " ")
	if err == nil {
		err = os.WriteFile(path+".new", append(text, '\n'), 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("chaos: saving a result: %w", err)
	}
	return nil
}

// LoadSuite reads a suite's file and its complete runs, in the order in which they started. It fails with
// fs.ErrNotExist if there is neither.
func LoadSuite(dir string) (*Suite, error) {
	suite := &Suite{}
	err := readJSON(filepath.Join(dir, ResultFile), suite)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	files, globErr := fs.Glob(os.DirFS(dir), "*/*/*/"+ResultFile)
	if globErr != nil || err != nil && len(files) == 0 {
		return nil, errors.Join(globErr, err)
	}
	for _, file := range files {
		run := Run{}
		if err := readJSON(filepath.Join(dir, file), &run); err != nil {
			return nil, err
		}
		if run.Scenario == "" {
			return nil, fmt.Errorf("chaos: %s is no run of a suite", file)
		}
		suite.Runs = append(suite.Runs, run)
	}
	slices.SortStableFunc(suite.Runs, func(a, b Run) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Dir, b.Dir))
	})
	return suite, nil
}

// Load reads what was kept of a run. It fails with fs.ErrNotExist if nothing was.
func Load(dir string, run *Run) (events []history.Event, observed observe.Observation, err error) {
	at := filepath.Join(dir, filepath.FromSlash(run.Dir))
	file, err := os.Open(filepath.Join(at, HistoryFile))
	if err != nil {
		return nil, observed, err
	}
	defer func() { _ = file.Close() }()
	err = history.Read(file, func(e history.Event) { events = append(events, e) })
	if err != nil {
		return nil, observed, fmt.Errorf("%s: %w", run, err)
	}
	history.Sort(events)
	err = readJSON(filepath.Join(at, observedFile), &observed)
	observed.Read()
	return events, observed, err
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("chaos: %s: %w", path, err)
	}
	return nil
}

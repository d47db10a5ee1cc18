package result

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// The files of a suite and of a run.
const (
	ResultFile   = "result.json"
	HistoryFile  = "history.jsonl"
	ObservedFile = "observed.json"
	ReportFile   = "report.html"
)

// Save keeps a run below the suite's directory dir, beside its history: what was observed, and
// the run itself, written last, so that a directory that has it is complete.
func Save(dir string, run *Run, observed *observe.Observation) error {
	at, err := runDir(dir, run)
	if err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(at, ObservedFile), observed); err != nil {
		return err
	}
	return writeJSON(filepath.Join(at, ResultFile), run)
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

// LoadSuite reads a suite's own file and the runs that are saved below it, in the order in
// which they started. Runs that the file lacks, because the process that made them ended
// first, are found by their directories; runs that only the file has are kept. Verdict and
// Reason are as they were saved: see Suite.Judge. It fails with fs.ErrNotExist if there is
// neither a file nor a run.
func LoadSuite(dir string) (*Suite, error) {
	suite := &Suite{}
	err := readJSON(filepath.Join(dir, ResultFile), suite)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	saved, globErr := fs.Glob(os.DirFS(dir), "*/*/*/"+ResultFile)
	if globErr != nil {
		return nil, fmt.Errorf("result: %w", globErr)
	}
	if err != nil && len(saved) == 0 {
		return nil, fmt.Errorf("result: %s holds no suite: %w", dir, fs.ErrNotExist)
	}
	for _, file := range saved {
		run := Run{}
		if err := readJSON(filepath.Join(dir, filepath.FromSlash(file)), &run); err != nil {
			return nil, err
		}
		run.Dir = path.Dir(file)
		suite.put(run)
	}
	slices.SortStableFunc(suite.Runs, func(a, b Run) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Dir, b.Dir))
	})
	return suite, suite.validate(dir)
}

// put adds a run, in place of the one with the same directory if there is one.
func (s *Suite) put(run Run) {
	if i := slices.IndexFunc(s.Runs, func(r Run) bool { return r.Dir == run.Dir }); i >= 0 {
		s.Runs[i] = run
		return
	}
	s.Runs = append(s.Runs, run)
}

func (s *Suite) validate(dir string) error {
	for i := range s.Runs {
		run := &s.Runs[i]
		if _, err := runDir(dir, run); err != nil {
			return err
		}
		if run.Scenario == "" {
			return fmt.Errorf("result: %s is no run of a suite", run.Dir)
		}
		if !run.Verdict.valid() {
			return fmt.Errorf("result: run %s has %q for a verdict: want %s, %s or %s", run.Dir, run.Verdict, Pass, Violated, Inconclusive)
		}
	}
	return nil
}

// Load reads a run's history, in the order of its times, and what was observed. It fails with
// fs.ErrNotExist if they were not kept.
func Load(dir string, run *Run) ([]history.Event, *observe.Observation, error) {
	at, err := runDir(dir, run)
	if err != nil {
		return nil, nil, err
	}
	file, err := os.Open(filepath.Join(at, HistoryFile))
	if err != nil {
		return nil, nil, fmt.Errorf("result: run %s: %w", run.Dir, err)
	}
	defer func() { _ = file.Close() }()
	var events []history.Event
	err = history.Read(file, func(e history.Event) error {
		events = append(events, e)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("result: run %s: %w", run.Dir, err)
	}
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	observed := &observe.Observation{}
	if err := readJSON(filepath.Join(at, ObservedFile), observed); err != nil {
		return nil, nil, err
	}
	return events, observed, nil
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("result: %s: %w", path, err)
	}
	return nil
}

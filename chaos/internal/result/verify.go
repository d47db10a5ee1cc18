package result

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

// Verification is the result of judging the runs of a suite again.
type Verification struct {
	Suite   *Suite   // as it is judged now
	Was     Verdict  // of the suite, as saved
	Changes []Change // runs with another verdict or finding than before
	Judged  int      // runs that were judged again
	Missing []string // runs whose files were not kept: their saved verdicts stay
}

// Change is a run with another verdict or finding than before.
type Change struct {
	Run      string   `json:"run"`
	Dir      string   `json:"dir"`
	Was      Verdict  `json:"was"`
	Is       Verdict  `json:"is"`
	Findings []string `json:"findings"` // that changed, as "I3: held, now violated: …"
}

// Verify judges the runs of a suite again by their saved files, as after a fix of a check. It
// changes nothing on disk. It fails if a history is incomplete.
func Verify(dir string) (*Verification, error) {
	suite, err := LoadSuite(dir)
	if err != nil {
		return nil, err
	}
	v := &Verification{Suite: suite, Was: suite.Verdict}
	for i := range suite.Runs {
		run := &suite.Runs[i]
		events, observed, err := Load(dir, run)
		if errors.Is(err, fs.ErrNotExist) {
			v.Missing = append(v.Missing, run.Dir)
			continue
		}
		if err != nil {
			return nil, err
		}
		was := *run
		run.Judge(events, *observed)
		if is := run.Counts.Operations; is < was.Counts.Operations {
			return nil, fmt.Errorf("result: run %s: its history has %d operations, and had %d: it is incomplete", run.Dir, is, was.Counts.Operations)
		}
		v.Judged++
		if findings := changed(was.Findings, run.Findings); len(findings) > 0 || was.Verdict != run.Verdict {
			v.Changes = append(v.Changes, Change{run.String(), run.Dir, was.Verdict, run.Verdict, findings})
		}
	}
	suite.Judge()
	return v, nil
}

// changed says which findings have another status.
func changed(was, is []check.Finding) []string {
	const none = "not judged"
	status := map[string]check.Status{}
	for _, f := range was {
		status[f.Property] = f.Status
	}
	var out []string
	for _, f := range is {
		before, judged := status[f.Property]
		if !judged {
			before = none
		}
		if before != f.Status {
			out = append(out, fmt.Sprintf("%s: %s, now %s: %s", f.Property, before, f.Status, f.Detail))
		}
		delete(status, f.Property)
	}
	var gone []string
	for property, before := range status {
		gone = append(gone, fmt.Sprintf("%s: %s, now %s", property, before, none))
	}
	slices.Sort(gone)
	return append(out, gone...)
}

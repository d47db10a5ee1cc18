package check

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// Suite is several runs, and what they show together.
type Suite struct {
	Started   time.Time         `json:"started"`
	Took      time.Duration     `json:"took"`     // ns
	Versions  map[string]string `json:"versions"` // of what took part: fencekit, go, etcd, postgres
	Scenarios []Scenario        `json:"scenarios"`
	Groups    []Group           `json:"groups"`
	Verdict   Verdict           `json:"verdict"`
	Reason    string            `json:"reason"` // of the verdict, one sentence with figures
	Runs      []Run             `json:"-"`      // each has a file of its own
	Wanted    []string          `json:"wanted"` // directories of the runs that were asked for last, present or not
	Ended     string            `json:"ended"`  // why it ended early; empty if nothing ended it
}

// Scenario describes a scenario.
type Scenario struct {
	Name     string   `json:"name"`
	Family   string   `json:"family"`
	Controls []string `json:"controls"` // that its faults break, and that run it too
	Summary  string   `json:"summary"`  // what goes wrong, in a sentence
}

// Group describes how the runs of a group keep operations apart.
type Group struct {
	Name        string `json:"name"`                     // Fenced, or that of a control
	Title       string `json:"title"`                    // for people
	Recipe      string `json:"recipe"`                   // what it does, in a sentence
	Flaw        string `json:"flaw"`                     // of a control: the schedule that breaks it
	RedByDesign bool   `json:"red_by_design" column:"-"` // a control that breaks without faults too
}

// Judge sets Verdict and Reason.
func (s *Suite) Judge() {
	scenarios := map[string]bool{}
	var fenced []Run
	var first *Run
	for i := range s.Runs {
		if r := &s.Runs[i]; r.Group == Fenced {
			fenced = append(fenced, *r)
			scenarios[r.Scenario] = true
			if r.Verdict == Violated && first == nil {
				first = r
			}
		}
	}
	sum, controls := Sum(fenced), s.Controls()
	runs := count(sum.Runs, "run", "runs")
	doubts := s.doubts(fenced, controls)
	switch {
	case first != nil:
		s.Verdict = Violated
		s.Reason = fmt.Sprintf("%d of %s violated a property. The first: %s: %s.", sum.Violated, runs, first, strings.TrimSuffix(first.Reason, "."))
	case len(doubts) > 0:
		s.Verdict = Inconclusive
		s.Reason = fmt.Sprintf("No violation in %s, but the suite is inconclusive: %s.", runs, strings.Join(doubts, "; "))
	default:
		s.Verdict = Pass
		s.Reason = fmt.Sprintf("No violation in %s of %s (%s, %s, %s as stale); %d of %s broke under the same faults.",
			runs, count(len(scenarios), "scenario", "scenarios"),
			count(sum.Counts.Operations, "operation", "operations"), count(sum.Counts.Faults, "fault", "faults"),
			count(sum.Counts.Rejections, "rejection", "rejections"), len(controls), count(len(controls), "control", "controls"))
	}
}

func (s *Suite) doubts(fenced []Run, controls []ControlResult) (doubts []string) {
	if !slices.ContainsFunc(fenced, func(r Run) bool { return r.Faults }) {
		doubts = append(doubts, "no run of Fencekit with faults")
	}
	if missing := s.missing(); missing != "" {
		doubts = append(doubts, missing)
	}
	if n := Sum(fenced).Inconclusive; n > 0 {
		doubts = append(doubts, fmt.Sprintf("%d of them inconclusive", n))
	}
	if len(controls) == 0 {
		doubts = append(doubts, "no control ran")
	}
	for _, c := range controls {
		if doubt := c.Doubt(); doubt != "" {
			doubts = append(doubts, c.Name+" "+doubt)
		}
	}
	return doubts
}

func (s *Suite) missing() string {
	absent := slices.DeleteFunc(slices.Clone(s.Wanted), func(dir string) bool {
		return slices.ContainsFunc(s.Runs, func(r Run) bool { return r.Dir == dir })
	})
	if len(absent) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s that were asked for are missing, the first %s", len(absent), count(len(s.Wanted), "run", "runs"), absent[0])
}

// ControlResult is the result of a control's runs.
type ControlResult struct {
	Group
	Faults Colors // of its runs with faults
	Calm   Colors // of its runs without
}

// Colors counts runs of a control: red ones (Run.Red), green ones, which pass, and those that show nothing.
type Colors struct{ Red, Green, Other int }

// String is as "3 of 5 red".
func (c Colors) String() string {
	text := fmt.Sprintf("%d of %d red", c.Red, c.Red+c.Green)
	if c.Other > 0 {
		text += fmt.Sprintf(", %d inconclusive", c.Other)
	}
	return text
}

// Doubt is why the control does not prove that the faults break it; empty if it does.
func (c ControlResult) Doubt() string {
	switch {
	case c.Faults == Colors{}:
		return "did not run with faults"
	case c.Faults.Red == 0:
		return fmt.Sprintf("survived the faults (%s)", c.Faults)
	case c.Calm == Colors{}:
		return "did not run without faults"
	case c.Calm.Red > 0 && !c.RedByDesign:
		return fmt.Sprintf("was red without faults as well (%s)", c.Calm)
	case c.Calm.Other > 0:
		return fmt.Sprintf("is not known to hold without faults (%s)", c.Calm)
	}
	return ""
}

// Controls returns the results of all controls that ran, in the order of Groups.
func (s *Suite) Controls() (all []ControlResult) {
	for _, group := range s.Groups {
		c := ControlResult{Group: group}
		for _, r := range s.Runs {
			colors := &c.Calm
			if r.Faults {
				colors = &c.Faults
			}
			switch {
			case r.Group != group.Name || r.Group == Fenced:
			case r.Red():
				colors.Red++
			case r.Verdict == Pass:
				colors.Green++
			default:
				colors.Other++
			}
		}
		if c.Faults != (Colors{}) || c.Calm != (Colors{}) {
			all = append(all, c)
		}
	}
	return all
}

// Totals are the figures of several runs together.
type Totals struct {
	Runs, Violated, Inconclusive int
	Counts                       Counts // summed up
}

// Sum adds up runs.
func Sum(runs []Run) Totals {
	t := Totals{Runs: len(runs)}
	for _, r := range runs {
		switch r.Verdict {
		case Violated:
			t.Violated++
		case Inconclusive:
			t.Inconclusive++
		}
		c, d := &t.Counts, r.Counts
		c.Operations, c.Unknown = c.Operations+d.Operations, c.Unknown+d.Unknown
		c.Rejections, c.Faults = c.Rejections+d.Rejections, c.Faults+d.Faults
		c.Oversold, c.Lost = c.Oversold+d.Oversold, c.Lost+d.Lost
	}
	return t
}

// A suite is a directory with result.json (the Suite), and a directory for each run (Run.Dir), whose
// result.json (the Run) is written last: a run that has it is complete.
const (
	ResultFile   = "result.json"
	HistoryFile  = "history.jsonl"
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

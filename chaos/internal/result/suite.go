package result

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Suite is several runs, and what they show together.
type Suite struct {
	Started   time.Time         `json:"started"`
	Took      time.Duration     `json:"took"`     // ns
	Command   string            `json:"command"`  // that repeats it
	Versions  map[string]string `json:"versions"` // of what took part: fencekit, go, etcd, postgres, redis
	Scenarios []Scenario        `json:"scenarios"`
	Groups    []Group           `json:"groups"`
	Verdict   Verdict           `json:"verdict"`
	Reason    string            `json:"reason"` // of the verdict, one sentence with figures
	Runs      []Run             `json:"runs"`
	Wanted    []string          `json:"wanted"` // directories of the runs that were asked for last, present or not
	Ended     string            `json:"ended"`  // why it ended early; empty if nothing ended it
}

// Scenario describes a scenario of the suite's runs.
type Scenario struct {
	Name    string `json:"name"`
	Family  string `json:"family"`
	Summary string `json:"summary"` // what goes wrong, in a sentence
}

// Group describes how the runs of a group kept operations apart.
type Group struct {
	Name        string `json:"name"`          // Fenced, or that of a control
	Title       string `json:"title"`         // for people
	Recipe      string `json:"recipe"`        // what it does, in a sentence
	Flaw        string `json:"flaw"`          // of a control: the schedule that breaks it
	RedByDesign bool   `json:"red_by_design"` // a control that breaks without faults too
}

// What a suite may lack.
const (
	noFenced  = "no run of Fencekit with faults"
	noControl = "no control ran"
)

// Judge sets Verdict and Reason by the verdicts of the runs. The suite is violated if a run
// under Fencekit is. It is inconclusive if one of those is, if none ran with faults, if
// a run that was asked for is missing, or if the controls don't prove that these faults break
// anything: none ran, one was red in none of its runs with faults, or one is not known to
// hold without them, unless it is red by design.
func (s *Suite) Judge() {
	fenced := Sum(s.of(Fenced))
	controls := s.Controls()
	if fenced.Violated > 0 {
		s.Verdict, s.Reason = Violated, s.violation(fenced)
		return
	}
	if doubts := s.doubts(fenced, controls); len(doubts) > 0 {
		s.Verdict, s.Reason = Inconclusive, fmt.Sprintf("No violation in %s, but the suite is inconclusive: %s.",
			count(fenced.Runs, "run", "runs"), strings.Join(doubts, "; "))
		return
	}
	s.Verdict = Pass
	s.Reason = fmt.Sprintf("No violation in %s of %s (%s, %s, %s as stale); %d of %s broke under the same faults.",
		count(fenced.Runs, "run", "runs"), count(s.scenarios(), "scenario", "scenarios"),
		count(fenced.Counts.Operations, "operation", "operations"), count(fenced.Counts.Faults, "fault", "faults"),
		count(fenced.Counts.Rejections, "rejection", "rejections"), len(controls), count(len(controls), "control", "controls"))
}

// violation names the first run that is violated.
func (s *Suite) violation(fenced Totals) string {
	for i := range s.Runs {
		if r := &s.Runs[i]; r.Group == Fenced && r.Verdict == Violated {
			return fmt.Sprintf("%d of %s violated a property. The first: %s: %s.",
				fenced.Violated, count(fenced.Runs, "run", "runs"), r, strings.TrimSuffix(r.Reason, "."))
		}
	}
	return ""
}

// doubts are the reasons why a suite without a violation is inconclusive.
func (s *Suite) doubts(fenced Totals, controls []Control) []string {
	var doubts []string
	if !slices.ContainsFunc(s.Runs, func(r Run) bool { return r.Group == Fenced && r.Faults }) {
		doubts = append(doubts, noFenced)
	}
	if missing := s.missing(); missing != "" {
		doubts = append(doubts, missing)
	}
	if fenced.Inconclusive > 0 {
		doubts = append(doubts, fmt.Sprintf("%d of them inconclusive", fenced.Inconclusive))
	}
	if len(controls) == 0 {
		doubts = append(doubts, noControl)
	}
	for _, c := range controls {
		if doubt := c.Doubt(); doubt != "" {
			doubts = append(doubts, c.Group.Name+" "+doubt)
		}
	}
	return doubts
}

// Early says why the suite ended early, and what is missing unless Reason does; empty if it
// did not.
func (s *Suite) Early() string {
	if s.Ended == "" {
		return ""
	}
	text := "It ended early: " + s.Ended + "."
	if missing := s.missing(); missing != "" && !strings.Contains(s.Reason, missing) {
		text += " " + missing + "."
	}
	return text
}

// missing says which runs that were asked for are missing, because the suite ended early;
// empty if none is.
func (s *Suite) missing() string {
	there := map[string]bool{}
	for _, r := range s.Runs {
		there[r.Dir] = true
	}
	absent := slices.DeleteFunc(slices.Clone(s.Wanted), func(dir string) bool { return there[dir] })
	if len(absent) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s that were asked for are missing, the first %s", len(absent), count(len(s.Wanted), "run", "runs"), absent[0])
}

// of returns the runs of a group.
func (s *Suite) of(group string) []Run {
	var runs []Run
	for _, r := range s.Runs {
		if r.Group == group {
			runs = append(runs, r)
		}
	}
	return runs
}

// scenarios counts the scenarios that ran under Fencekit.
func (s *Suite) scenarios() int {
	names := map[string]bool{}
	for _, r := range s.of(Fenced) {
		names[r.Scenario] = true
	}
	return len(names)
}

// Control is the result of a control's runs. A run that violates a property that the
// control has to violate is red (Run.Red), one that passes is green.
type Control struct {
	Group  Group
	Faults Colors // of its runs with faults
	Calm   Colors // of its runs without
}

// Colors counts runs of a control.
type Colors struct {
	Red, Green   int
	Other        int // violated in another property only
	Inconclusive int // inconclusive
}

// Rate is the share of red runs among those that were judged; 0 if none was.
func (c Colors) Rate() float64 {
	if c.Red == 0 {
		return 0
	}
	return float64(c.Red) / float64(c.judged())
}

func (c Colors) judged() int { return c.Red + c.Green + c.Other }

// String is as "3 of 5 red".
func (c Colors) String() string {
	text := fmt.Sprintf("%d of %d red", c.Red, c.judged())
	if c.Other > 0 {
		text += fmt.Sprintf(", %d violated in another property only", c.Other)
	}
	if c.Inconclusive > 0 {
		text += fmt.Sprintf(", %d inconclusive", c.Inconclusive)
	}
	return text
}

// Doubt is why the control does not prove that the faults break it; empty if it does.
func (c Control) Doubt() string {
	switch {
	case c.Faults == Colors{}:
		return "did not run with faults"
	case c.Faults.Red == 0 && c.Faults.Other > 0:
		return fmt.Sprintf("did not break with faults as it has to (%s)", c.Faults)
	case c.Faults.Red == 0:
		return fmt.Sprintf("survived the faults (%s)", c.Faults)
	case c.Calm == Colors{}:
		return "did not run without faults"
	case c.Calm.Red > 0 && !c.Group.RedByDesign:
		return fmt.Sprintf("was red without faults as well (%s)", c.Calm)
	case c.Calm.Other > 0:
		return fmt.Sprintf("was violated without faults as well (%s)", c.Calm)
	case c.Calm.Inconclusive > 0:
		return fmt.Sprintf("is not known to hold without faults (%s)", c.Calm)
	}
	return ""
}

// add counts a run.
func (c *Colors) add(r *Run) {
	switch {
	case r.Red():
		c.Red++
	case r.Verdict == Violated:
		c.Other++
	case r.Verdict == Pass:
		c.Green++
	default:
		c.Inconclusive++
	}
}

// Controls returns the results of all controls that ran: in the order of Groups, then by name
// those that Groups doesn't have.
func (s *Suite) Controls() []Control {
	var controls []Control
	for _, group := range s.controlGroups() {
		c := Control{Group: group}
		for _, r := range s.of(group.Name) {
			colors := &c.Calm
			if r.Faults {
				colors = &c.Faults
			}
			colors.add(&r)
		}
		controls = append(controls, c)
	}
	return controls
}

func (s *Suite) controlGroups() []Group {
	ran := map[string]bool{}
	for _, r := range s.Runs {
		ran[r.Group] = r.Group != Fenced
	}
	var groups []Group
	for _, g := range s.Groups {
		if ran[g.Name] {
			groups = append(groups, g)
			delete(ran, g.Name)
		}
	}
	var rest []string
	for name, control := range ran {
		if control {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	for _, name := range rest {
		groups = append(groups, Group{Name: name})
	}
	return groups
}

// Totals are the figures of several runs together.
type Totals struct {
	Runs         int       `json:"runs"`
	Violated     int       `json:"violated"`
	Inconclusive int       `json:"inconclusive"`
	Counts       Counts    `json:"counts"`    // summed up
	Latency      Quantiles `json:"latency"`   // the worst of each
	HandOver     Quantiles `json:"hand_over"` // the worst of each
}

// Sum adds up runs.
func Sum(runs []Run) Totals {
	t := Totals{Runs: len(runs)}
	for i := range runs {
		r := &runs[i]
		switch r.Verdict {
		case Violated:
			t.Violated++
		case Inconclusive:
			t.Inconclusive++
		}
		add(&t.Counts, r.Counts)
		t.Latency = t.Latency.worse(r.Latency)
		t.HandOver = t.HandOver.worse(r.HandOver)
	}
	return t
}

func add(c *Counts, d Counts) {
	c.Operations += d.Operations
	c.OK += d.OK
	c.Failed += d.Failed
	c.Unknown += d.Unknown
	c.Rejections += d.Rejections
	c.Faults += d.Faults
	c.Oversold += d.Oversold
	c.Lost += d.Lost
}

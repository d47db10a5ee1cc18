package result

import (
	"fmt"
	"slices"
)

// Control is what the runs of a control came to. A run that violates what the control
// has to break is red (Run.Red), one that passes is green.
type Control struct {
	Group  Group
	Faults Colors // of its runs under faults
	Calm   Colors // of its runs without
}

// Colors counts runs of a control.
type Colors struct {
	Red, Green int
	Beside     int // violated in something else only
	Nothing    int // inconclusive
}

// Rate is the share of red among the runs that were judged, 0 if none was.
func (c Colors) Rate() float64 {
	if c.Red == 0 {
		return 0
	}
	return float64(c.Red) / float64(c.judged())
}

func (c Colors) judged() int { return c.Red + c.Green + c.Beside }

// String is as "3 of 5 red".
func (c Colors) String() string {
	text := fmt.Sprintf("%d of %d red", c.Red, c.judged())
	if c.Beside > 0 {
		text += fmt.Sprintf(", %d violated in something else only", c.Beside)
	}
	if c.Nothing > 0 {
		text += fmt.Sprintf(", %d inconclusive", c.Nothing)
	}
	return text
}

// Doubt is why the control does not show that the faults break what they should
// break; empty if it does.
func (c Control) Doubt() string {
	switch {
	case c.Faults == Colors{}:
		return "didn't run under faults"
	case c.Faults.Red == 0 && c.Faults.Beside > 0:
		return fmt.Sprintf("did not break under faults in what it has to (%s)", c.Faults)
	case c.Faults.Red == 0:
		return fmt.Sprintf("stayed green under faults (%s)", c.Faults)
	case c.Calm == Colors{}:
		return "didn't run without faults"
	case c.Calm.Red > 0 && !c.Group.RedByDesign:
		return fmt.Sprintf("was red without faults too (%s)", c.Calm)
	case c.Calm.Beside > 0:
		return fmt.Sprintf("was violated without faults too (%s)", c.Calm)
	case c.Calm.Nothing > 0:
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
		c.Beside++
	case r.Verdict == Pass:
		c.Green++
	default:
		c.Nothing++
	}
}

// Controls returns what became of each control that ran, in the order of Groups,
// and of those that aren't there by name.
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

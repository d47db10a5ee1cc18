package result

import (
	"fmt"
	"slices"
)

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

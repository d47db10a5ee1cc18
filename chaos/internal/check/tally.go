package check

import "fmt"

// maxExamples bounds the counterexamples of a finding.
const maxExamples = 5

// tally is the result of a property's check so far.
type tally struct {
	looked   string // what was checked, with figures
	lacking  string // what the check needs and doesn't have
	wrong    int
	examples []string
}

// look says what is checked.
func (t *tally) look(format string, args ...any) { t.looked = fmt.Sprintf(format, args...) }

// lack says that the check lacks something that it needs.
func (t *tally) lack(format string, args ...any) {
	if t.lacking == "" {
		t.lacking = fmt.Sprintf(format, args...)
	}
}

// violate adds a counterexample.
func (t *tally) violate(format string, args ...any) {
	if t.wrong++; t.wrong <= maxExamples {
		t.examples = append(t.examples, fmt.Sprintf(format, args...))
	}
}

func (t *tally) status() Status {
	switch {
	case t.wrong > 0:
		return Violated // also if something else could not be checked
	case t.lacking != "":
		return Unchecked
	}
	return Held
}

func (t *tally) detail() string {
	switch {
	case t.wrong == 1:
		return "1 counterexample; " + t.looked
	case t.wrong > 1:
		return fmt.Sprintf("%d counterexamples; %s", t.wrong, t.looked)
	case t.lacking != "":
		return t.lacking
	}
	return t.looked
}

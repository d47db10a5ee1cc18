package check

import (
	"slices"
	"strings"
)

// meetings checks I11. A run that didn't meet what it was made for shows nothing:
// that is no violation.
func meetings(v *view, t *tally) {
	hits := Hits(v.Record)
	for _, name := range slices.Sorted(slices.Values(v.Meet)) {
		hit, least, _ := strings.Cut(name, atLeast)
		if int64(hits[hit]) < max(1, number(least)) {
			t.lack("it never met: %s", name)
			t.examples = append(t.examples, "never met: "+name)
		}
	}
	t.look("it met all %d kinds of trouble that it was meant to meet", len(v.Meet))
}

func ofMeetings(r *Record) string {
	if why := ofFenced(r); why != "" {
		return why
	}
	if len(r.Meet) == 0 {
		return "the run was not meant to meet anything"
	}
	return ""
}

package check

import "slices"

// meetings checks I11. A run that didn't meet what it was made for shows nothing:
// that is no violation.
func meetings(v *view, t *tally) {
	hits := Hits(v.Record)
	for _, name := range slices.Sorted(slices.Values(v.Meet)) {
		if hits[name] == 0 {
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

package check

import (
	"slices"
	"strings"
)

// required checks I11. A run without everything that its scenario requires is inconclusive,
// not violated.
func required(v *view, t *tally) {
	hits := Hits(v.Record)
	for _, name := range slices.Sorted(slices.Values(v.Requires)) {
		hit, least, _ := strings.Cut(name, atLeast)
		if int64(hits[hit]) < max(1, number(least)) {
			t.lack("required and did not happen: %s", name)
			t.examples = append(t.examples, "did not happen: "+name)
		}
	}
	t.look("all %d required hits happened", len(v.Requires))
}

func ofRequired(r *Record) string {
	if why := ofFenced(r); why != "" {
		return why
	}
	if len(r.Requires) == 0 {
		return "the scenario requires nothing"
	}
	return ""
}

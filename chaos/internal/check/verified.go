package check

import (
	"slices"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// faultTamper is the kind of the fault that changes entries of the history.
const faultTamper = "tamper"

// verified checks I13: the history verifies (audit.Database.Verify), but for the entries that a fault has
// tampered with, each of which is found; and each record of rejections names a claim that is in it, since
// nothing here prunes, and no one makes records up.
func verified(v *view, t *tally) {
	report := v.Observed.Verified
	if report == nil {
		t.lack("the history was not verified")
		return
	}
	t.look("%d entries, %d of them tampered with", report.Entries, len(v.wal.changed))
	found := map[position]bool{}
	for _, f := range report.Findings {
		at := position{f.Resource, f.Seq}
		found[at] = true
		if v.wal.changed[at] == "" {
			t.violate("%s", f)
		}
	}
	for _, f := range report.Unexplained {
		t.violate("%s", f)
	}
	for at := range v.wal.changed {
		if !found[at] {
			t.violate("%s: the entry at position %d was tampered with, and that is not found", at.resource, at.seq)
		}
	}
}

// tampered reports whether a fault tampers with the history.
func (v *view) tampered() bool {
	return slices.ContainsFunc(v.Events, func(e history.Event) bool {
		return e.Kind == history.Injected && strings.HasPrefix(e.Name, faultTamper+" ")
	})
}

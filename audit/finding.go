package audit

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// FindingKind is the kind of a finding.
type FindingKind string

// The kinds of findings.
const (
	FindingChangedEntry         FindingKind = "changed entry"       // the hash doesn't fit the entry and the one before it
	FindingMissingEntries       FindingKind = "missing entries"     // positions without an entry
	FindingRepeatedEntry        FindingKind = "repeated entry"      // a second entry at or before a position
	FindingMalformedEntry       FindingKind = "malformed entry"     // columns that no move of a fence writes together
	FindingTokensOutOfOrder     FindingKind = "tokens out of order" // a claim whose grant isn't higher than the one before
	FindingWrongClaim           FindingKind = "wrong claim"         // an entry that names a claim under which it can't have been made
	FindingWrongName            FindingKind = "wrong name"          // a claim that names another resource, or two fences of one name
	FindingWrongFence           FindingKind = "wrong fence"         // a fence that isn't as the last entry left it
	FindingMissingFence         FindingKind = "missing fence"       // entries, or a checkpoint, without a fence
	FindingWrongCheckpoint      FindingKind = "wrong checkpoint"    // a checkpoint that the entries don't fit
	FindingPrunedOnHold         FindingKind = "pruned on hold"      // a prune after the hold
	FindingUnfoundedOperation   FindingKind = "unfounded operation" // a kept operation whose write isn't in the history
	FindingLoweredMark          FindingKind = "lowered mark"        // the database's highest epoch or token is below what has claimed
	FindingRewrittenHistory     FindingKind = "rewritten history"   // another entry than the one that was known
	FindingOlderState           FindingKind = "older state"         // the history ends before an entry that was known
	FindingDamagedExport        FindingKind = "damaged export"
	FindingUnprotectedTable     FindingKind = "unprotected table"     // a table without what protects it from changes
	FindingUnexplainedRejection FindingKind = "unexplained rejection" // only in Report.Unexplained
)

// Finding is an inconsistency that Fencekit alone never causes.
type Finding struct {
	Kind     FindingKind `json:"kind"`
	Resource string      `json:"resource,omitempty"` // its name, or its number if it has no name
	Seq      int64       `json:"seq,omitempty"`      // the position, if the finding has one
	Text     string      `json:"text"`               // one sentence for a reader who doesn't program
	Expected string      `json:"expected,omitempty"`
	Found    string      `json:"found,omitempty"`
}

func (f Finding) String() string {
	switch {
	case f.Resource == "":
		return f.Text
	case f.Seq == 0:
		return f.Resource + ": " + f.Text
	}
	return fmt.Sprintf("%s, entry %d: %s", f.Resource, f.Seq, f.Text)
}

// findings collects what several goroutines find, up to a limit, and counts the rest.
type findings struct {
	mu    sync.Mutex
	limit int
	list  []Finding
	total int64
}

func newFindings(limit int) *findings { return &findings{limit: limit, list: []Finding{}} }

func (f *findings) add(found Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total++
	if len(f.list) < f.limit {
		f.list = append(f.list, found)
	}
}

// sorted returns them by resource and position.
func (f *findings) sorted() []Finding {
	slices.SortFunc(f.list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	return f.list
}

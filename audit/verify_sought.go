package audit

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fencekit/fencekit/internal/record"
)

// sought is what has to be found in the history of one resource: the claims that its rejections
// name, and the writes that kept operations were part of. Several goroutines may pass entries.
type sought struct {
	rejections []record.Rejection // by the grant that had the fence
	explained  []atomic.Bool
	writes     []keptWrite // by transaction
	written    []atomic.Bool
}

// keptWrite is the transaction of a kept operation.
type keptWrite struct {
	tx int64
	at record.Time
}

// newSought takes over both slices.
func newSought(rejections []record.Rejection, writes []keptWrite) *sought {
	slices.SortFunc(rejections, func(a, b record.Rejection) int { return currentGrant(&a).compare(currentGrant(&b)) })
	slices.SortFunc(writes, func(a, b keptWrite) int { return cmp.Compare(a.tx, b.tx) })
	return &sought{rejections: rejections, explained: make([]atomic.Bool, len(rejections)), writes: writes, written: make([]atomic.Bool, len(writes))}
}

func currentGrant(r *record.Rejection) grant { return grant{r.CurrentEpoch, r.CurrentToken} }

// pass marks what e is sought for.
func (s *sought) pass(e *record.Entry) {
	switch e.Kind {
	case record.Write:
		i, _ := slices.BinarySearchFunc(s.writes, e.Tx, func(w keptWrite, tx int64) int { return cmp.Compare(w.tx, tx) })
		for ; i < len(s.writes) && s.writes[i].tx == e.Tx; i++ {
			s.written[i].Store(true)
		}
	case record.Claim:
		if len(s.rejections) == 0 || e.Epoch == nil || e.Token == nil || e.Holder == nil {
			return
		}
		g := grant{*e.Epoch, *e.Token}
		i, _ := slices.BinarySearchFunc(s.rejections, g, func(r record.Rejection, g grant) int { return currentGrant(&r).compare(g) })
		for ; i < len(s.rejections) && currentGrant(&s.rejections[i]) == g; i++ {
			r := &s.rejections[i]
			if r.CurrentHolder == *e.Holder && (r.CurrentSince == nil || *r.CurrentSince == e.At) {
				s.explained[i].Store(true)
			}
		}
	}
}

// settle reports what was not found, when the whole history of s was passed.
func (s *subject) settle() {
	for i := range s.sought.rejections {
		s.settleRejection(&s.sought.rejections[i], s.sought.explained[i].Load())
	}
	s.counts.rejections.Add(int64(len(s.sought.rejections)))
	s.counts.operations.Add(int64(len(s.sought.writes)))
	for i, w := range s.sought.writes {
		switch {
		case s.sought.written[i].Load():
		case s.checkpoint != nil && w.at < s.checkpoint.PrunedAt:
			s.counts.prunedOperations.Add(1)
		default:
			s.find(FindingUnfoundedOperation, 0, "An operation is kept as done whose write isn't in the history: it would not run again.", "a write of transaction "+number(w.tx), "none")
		}
	}
}

// settleRejection lists a rejection whose claim isn't in the history.
func (s *subject) settleRejection(r *record.Rejection, explained bool) {
	if explained || r.CurrentHolder == "" { // no grant had the fence
		return
	}
	expected := "a claim of " + currentGrant(r).String() + " by " + r.CurrentHolder
	if r.CurrentSince != nil {
		expected += " at " + r.CurrentSince.String()
	}
	s.unexplained.add(Finding{Kind: FindingUnexplainedRejection, Resource: s.title(), Expected: expected, Found: "none",
		Text: fmt.Sprintf("The rejection of %s (%s) as %q names a claim that isn't in the history.", grant{r.Epoch, r.Token}, r.Holder, r.Reason)})
}

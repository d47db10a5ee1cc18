package audit

import (
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/internal/record"
)

type subject struct {
	*section
	number     int32
	name       string        // "" if there is no fence, until a claim says it
	fence      *record.Fence // nil if there is none
	checkpoint *record.Checkpoint
	held       *record.Hold
	to         int64 // where the part of the history ends that a prune exported

	rejections map[grant][]record.Rejection // whose claims weren't found yet, by the grant that had the fence
	writes     map[int64][]record.Time      // of kept operations, by transaction, which weren't found yet
}

func newSubject(s *section, number int32, name string) *subject {
	return &subject{section: s, number: number, name: name, rejections: map[grant][]record.Rejection{}, writes: map[int64][]record.Time{}}
}

func (s *subject) title() string {
	if s.name != "" {
		return s.name
	}
	return fmt.Sprintf("number %d", s.number)
}

func (s *subject) find(kind FindingKind, seq int64, text, expected, found string) {
	s.add(Finding{Kind: kind, Resource: s.title(), Seq: seq, Text: text, Expected: expected, Found: found})
}

// expect expects the claim that a rejection names, if one had the fence.
func (s *subject) expect(r record.Rejection) {
	s.report.Rejections++
	if r.CurrentHolder != "" {
		g := grant{r.CurrentEpoch, r.CurrentToken}
		s.rejections[g] = append(s.rejections[g], r)
	}
}

func (s *subject) pass(e *record.Entry) {
	if e.Kind == record.Write {
		delete(s.writes, e.Tx)
	}
	if e.Kind != record.Claim || len(s.rejections) == 0 || e.Epoch == nil || e.Token == nil || e.Holder == nil {
		return
	}
	g := grant{*e.Epoch, *e.Token}
	if left := slices.DeleteFunc(s.rejections[g], func(r record.Rejection) bool {
		return r.CurrentHolder == *e.Holder && (r.CurrentSince == nil || *r.CurrentSince == e.At)
	}); len(left) > 0 {
		s.rejections[g] = left
	} else {
		delete(s.rejections, g)
	}
}

func (s *subject) settle() {
	for g, rejections := range s.rejections {
		for _, r := range rejections {
			expected := "a claim of " + g.String() + " by " + r.CurrentHolder
			if r.CurrentSince != nil {
				expected += " at " + r.CurrentSince.String()
			}
			s.addUnexplained(Finding{Kind: FindingUnexplainedRejection, Resource: s.title(), Expected: expected, Found: "none",
				Text: fmt.Sprintf("The rejection of %s (%s) as %q names a claim that isn't in the history.", grant{r.Epoch, r.Token}, r.Holder, r.Reason)})
		}
	}
	for tx, operations := range s.writes {
		for _, at := range operations {
			if s.checkpoint != nil && at < s.checkpoint.PrunedAt {
				s.report.Unprovable.Operations++
				continue
			}
			s.find(FindingUnfoundedOperation, 0, "An operation is kept as done whose write isn't in the history: it would not run again.", "a write of transaction "+number(tx), "none")
		}
	}
}

package audit

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage"
)

// sought is what has to be found in the history of one resource: the claims that justify its
// rejections, and the writes that kept operations were part of. Several goroutines may pass
// entries.
type sought struct {
	rejections []record.Rejection // by the grant that had the fence
	justified  []atomic.Bool
	writes     []keptWrite // by transaction
	written    []atomic.Bool

	mu        sync.Mutex
	begin     grant      // of the lowest claim that was passed
	failovers [][2]grant // the grants before and after each
	end       grant      // of the last claim
	timeline  int32      // of the last claim; 0 if there is none
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
	return &sought{rejections: rejections, justified: make([]atomic.Bool, len(rejections)), writes: writes, written: make([]atomic.Bool, len(writes))}
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
		s.passed(g)
		i, _ := slices.BinarySearchFunc(s.rejections, g, func(r record.Rejection, g grant) int { return currentGrant(&r).compare(g) })
		for ; i < len(s.rejections) && currentGrant(&s.rejections[i]) == g; i++ {
			r := &s.rejections[i]
			if r.CurrentHolder == *e.Holder && (r.CurrentSince == nil || *r.CurrentSince == e.At) {
				s.justified[i].Store(true)
			}
		}
	}
}

func (s *sought) passed(g grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begin == (grant{}) || g.compare(s.begin) < 0 {
		s.begin = g
	}
}

// failedOver says that the database failed over between two claims.
func (s *sought) failedOver(before, after grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failovers = append(s.failovers, [2]grant{before, after})
}

// last says which claim is the last.
func (s *sought) last(g grant, timeline int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end, s.timeline = g, timeline
}

// settle reports what was not found, when the whole history of s was passed.
func (s *subject) settle() {
	for i := range s.sought.rejections {
		s.settleRejection(&s.sought.rejections[i], s.sought.justified[i].Load())
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

// settleRejection reports a rejection that contradicts itself, or whose claim should be in the
// history and isn't.
func (s *subject) settleRejection(r *record.Rejection, justified bool) {
	expected, ok := contradiction(r)
	switch {
	case !ok:
		s.unjustified(r, expected)
	case justified || r.CurrentHolder == "": // no grant had the fence
	case s.pruned(currentGrant(r)) || s.lost(currentGrant(r)):
		s.counts.prunedRejections.Add(1)
	default:
		s.unjustified(r, "a claim of "+currentGrant(r).String()+" by "+r.CurrentHolder+since(r))
	}
}

func (s *subject) unjustified(r *record.Rejection, expected string) {
	s.find(FindingUnjustifiedRejection, 0, fmt.Sprintf("The rejection of %s (%s) as %q isn't justified by the history: it was made up or changed, or the claim that justified it was removed.", grant{r.Epoch, r.Token}, r.Holder, r.Reason),
		expected, fmt.Sprintf("rejected by %s (%s)", currentGrant(r), r.CurrentHolder))
}

func since(r *record.Rejection) string {
	if r.CurrentSince == nil {
		return ""
	}
	return " at " + r.CurrentSince.String()
}

// contradiction returns what a rejection for its reason has to be like, and whether it is.
func contradiction(r *record.Rejection) (expected string, ok bool) {
	order := currentGrant(r).compare(grant{r.Epoch, r.Token})
	switch storage.Reason(r.Reason) {
	case storage.ReasonStale:
		return "a higher grant that had the fence", order > 0 && r.CurrentHolder != ""
	case storage.ReasonOvertaken:
		return "the same grant", order == 0 && r.CurrentHolder == r.Holder
	case storage.ReasonFailedOver:
		return "the same grant", order == 0 && r.CurrentHolder != ""
	case storage.ReasonCollision:
		return "another holder of the same token", order == 0 && r.CurrentHolder != "" && r.CurrentHolder != r.Holder
	case storage.ReasonWentBack:
		return "a grant that isn't higher", order <= 0
	case storage.ReasonEpochBehind:
		return "a higher epoch of the database", r.CurrentEpoch > r.Epoch && r.CurrentHolder == ""
	case storage.ReasonTokenJump:
		return "a lower mark of the database", order < 0 && r.CurrentHolder == ""
	}
	return "a reason that Fencekit has", false
}

// pruned reports whether a claim of g may have been pruned: the first one that is left is higher.
func (s *subject) pruned(g grant) bool {
	return s.checkpoint != nil && g.compare(s.sought.begin) < 0
}

// lost reports whether a claim of g may have been lost when the database failed over. A grant that
// this claim rejected may have been recorded as rejected afterwards.
func (s *subject) lost(g grant) bool {
	if s.setting.Timeline != 0 && s.sought.timeline != 0 && g.compare(s.sought.end) > 0 && s.sought.timeline != s.setting.Timeline {
		return true
	}
	return slices.ContainsFunc(s.sought.failovers, func(f [2]grant) bool { return g.compare(f[0]) > 0 && g.compare(f[1]) < 0 })
}

package check

import (
	"math"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/storage"
)

// rejections checks I6: the claim that a rejection as stale names is in the write-ahead
// log, and did not begin after the rejection was recorded.
//
// A claim has no time of its own. It committed after its lock was acquired, after the
// beginning of every operation that the write-ahead log has before it for the resource, and
// at the latest when its worker recorded it, which the worker may never have done. So a
// rejection is certainly unjustified if there is no such claim, or if the claim can only
// have committed after the rejection was recorded; if the claim committed in between, the
// rejection is accepted.
func rejections(v *view, t *tally) {
	claims := v.claims()
	seen := 0
	for _, e := range v.Events {
		if stale(e) {
			seen++
			claims.justify(e, t)
		}
	}
	t.look("workers saw %d rejections as stale; %d kinds of rejections are in the history", seen, len(v.Observed.Rejections))
	if len(v.wal.moves) == 0 {
		t.lack("the write-ahead log shows no entry")
	}
	for _, r := range v.Observed.Rejections {
		if r.Reason != string(storage.ReasonStale) {
			continue
		}
		justified := false
		for _, c := range claims[token{r.Resource, r.Current}] { // a lower token is higher only in a later epoch
			justified = justified || c.Token > r.Token || c.Epoch > 1
		}
		if !justified {
			t.violate("%s: a recorded rejection of token %d of %s for token %d, which never claimed or is not higher", r.Resource, r.Token, r.Holder, r.Current)
		}
	}
}

// claim is a claim in the write-ahead log, and the earliest time at which it can
// have committed.
type claim struct {
	*move
	notBefore int64
}

// claims are the claims with each token: several only if another epoch issued it again.
type claims map[token][]claim

func (v *view) claims() claims {
	begun := map[*move]int64{}
	for _, w := range v.wrote() {
		begun[w.move] = max(begun[w.move], w.op.invoked)
	}
	all := claims{}
	for resource, moves := range v.wal.byResource {
		notBefore := int64(math.MinInt64)
		for _, m := range moves {
			if m.Kind != "claim" {
				notBefore = max(notBefore, begun[m])
				continue
			}
			acquired, _ := v.claimTimes(grantKey{resource, grantOf(m.Entry)})
			notBefore = max(notBefore, acquired)
			at := token{resource, m.Token}
			all[at] = append(all[at], claim{m, notBefore})
		}
	}
	return all
}

// justify looks for the claim that a rejection names.
func (c claims) justify(e history.Event, t *tally) {
	higher := false
	for _, claim := range c[token{e.Resource, e.Current}] {
		if grantOf(claim.Entry).compare(keyOf(e).grant) <= 0 {
			continue
		}
		if claim.notBefore <= e.At {
			return
		}
		higher = true
	}
	if higher {
		t.violate("%s: %v of %s was rejected at %s before the claim of token %d began", e.Resource, keyOf(e).grant, e.Holder, e.Stage, e.Current)
		return
	}
	t.violate("%s: %v of %s was rejected at %s for token %d, which never claimed or is not higher", e.Resource, keyOf(e).grant, e.Holder, e.Stage, e.Current)
}

package check

import (
	"math"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/storage"
)

// refusals checks I6: what a refusal as stale says is in the data, and was not
// begun only after the refusal was told.
//
// A claim has no time of its own: it committed after it was acquired, after
// whatever the write-ahead log has before it for the resource was begun, and at
// the latest when its claimer told of it, which it may never have done. So a
// refusal is unjustified for certain if there is no such claim, or if it can only
// have committed after the refusal was told; one that committed in between is
// taken for justified.
func refusals(v *view, t *tally) {
	claims := v.claims()
	told := 0
	for _, e := range v.Events {
		if stale(e) {
			told++
			claims.justify(e, t)
		}
	}
	t.look("%d refusals as stale that processes told of, %d kinds that were recorded", told, len(v.Observed.Refusals))
	if len(v.wal.moves) == 0 {
		t.lack("no entry was seen in the write-ahead log")
	}
	for _, r := range v.Observed.Refusals {
		if r.Reason != string(storage.ReasonStale) {
			continue
		}
		justified := false
		for _, c := range claims[token{r.Resource, r.Current}] { // a lower token is higher only in a later epoch
			justified = justified || c.Token > r.Token || c.Epoch > 1
		}
		if !justified {
			t.violate("%s: a recorded refusal of token %d of %s for token %d, which never claimed or isn't higher", r.Resource, r.Token, r.Holder, r.Current)
		}
	}
}

// claim is a claim in the write-ahead log, and the earliest time at which it can
// have committed.
type claim struct {
	*move
	notBefore int64
}

// claims are the claims with each token: several only if epochs issued it again.
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

// justify looks for the claim that a refusal names.
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
		t.violate("%s: %v of %s was refused at %s before the claim of token %d was begun", e.Resource, keyOf(e).grant, e.Holder, e.Stage, e.Current)
		return
	}
	t.violate("%s: %v of %s was refused at %s for token %d, which never claimed or isn't higher", e.Resource, keyOf(e).grant, e.Holder, e.Stage, e.Current)
}

package check

import "fmt"

// register checks I5 in two ways that have only the entries in common: by the order of
// commits, and by the times of the workers' events.
func register(v *view, t *tally) {
	t.look("%d moves of fences, %d orders", len(v.wal.moves), len(v.wal.orders))
	if len(v.wal.moves) == 0 {
		t.lack("the write-ahead log shows no entry")
		return
	}
	v.checkClaimed(t)
	v.linearize(t)
}

// checkClaimed checks that each write is under the last claim: not under a lower one, which
// is stale, nor under a grant that never claimed.
func (v *view) checkClaimed(t *tally) {
	orders := map[int][]order{}
	if v.Stock {
		for _, o := range v.wal.orders {
			orders[o.commit] = append(orders[o.commit], o)
		}
	}
	moves := map[int][]*move{}
	for _, m := range v.wal.moves {
		moves[m.commit] = append(moves[m.commit], m)
	}
	claimed := map[string]*move{}
	for n := range v.Observed.Commits {
		for _, m := range moves[n] {
			if m.Kind == "claim" {
				claimed[m.Resource] = m
			} else if last := claimed[m.Resource]; last == nil || grantOf(last.Entry) != grantOf(m.Entry) || last.Holder != m.Holder {
				t.violate("%s: %s by %s with %v at position %d, after %s", m.Resource, m.Kind, m.Holder, grantOf(m.Entry), m.Seq, last.claim())
			}
		}
		for _, o := range orders[n] {
			if last := claimed[o.Resource]; last == nil || last.Token != o.Token {
				t.violate("%s: operation %s wrote with token %d, after %s", o.Resource, o.Op, o.Token, last.claim())
			}
		}
	}
}

// claim describes a claim.
func (m *move) claim() string {
	if m == nil {
		return "no claim"
	}
	return fmt.Sprintf("the claim of %s with %v", m.Holder, grantOf(m.Entry))
}

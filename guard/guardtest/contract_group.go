package guardtest

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// groupParts are for a storage.GroupStore that forms groups. Any other store passes them.
func groupParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{"Group_TakesItsCallsOnce", ofGroups(groupTakes[Tx])},
		{"Group_TakesNoCallsWhenCtxHasEnded", ofGroups(groupCancelled[Tx])},
		{"Group_MovesEachFenceInOneTransaction", ofGroups(groupMoves[Tx])},
		{"Group_OneSupersededMeanwhileRejectsAll", ofGroups(groupSuperseded[Tx])},
		{"Group_AnyOfItsResourcesRulesItOut", ofGroups(groupRuledOut[Tx])},
	}
}

// groupRun is a part being tested on a store that forms groups.
type groupRun[Tx any] struct {
	*run[Tx]
	groups storage.GroupStore[Tx]
}

func ofGroups[Tx any](part func(r groupRun[Tx])) func(r *run[Tx]) {
	return func(r *run[Tx]) {
		if groups, ok := r.Store.(storage.GroupStore[Tx]); ok && groups.CanGroup() {
			part(groupRun[Tx]{r, groups})
		}
	}
}

// beginGroup begins a transaction under claims, which has to succeed.
func (r groupRun[Tx]) beginGroup(claims ...storage.Claim) storage.Txn[Tx] {
	r.Helper()
	txn, err := r.groups.BeginGroup(r.ctx, func() []storage.Claim { return claims })
	r.noError(err)
	r.Cleanup(func() { txn.Rollback(context.Background()) })
	return txn
}

// groupTakes: what members returned once it won't return again, since those calls no longer
// wait.
func groupTakes[Tx any](r groupRun[Tx]) {
	taken := 0
	claims := r.claimAll(grantOf("a", 5), grantOf("b", 6))
	txn, err := r.groups.BeginGroup(r.ctx, func() []storage.Claim { taken++; return claims })
	r.noError(err)
	moved, err := r.finish(r.ctx, txn, r.set(key, 1))
	r.noError(err)
	r.sameLength(moved, claims)
	if taken != 1 {
		r.Fatalf("the calls were taken %d times", taken)
	}
	r.holds(key, 1)
}

func groupCancelled[Tx any](r groupRun[Tx]) {
	c := r.claim(grant(7))
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	_, err := r.groups.BeginGroup(ctx, func() []storage.Claim {
		r.Error("the calls were taken under a context that has ended")
		return []storage.Claim{c}
	})
	if !errors.Is(err, context.Canceled) {
		r.Fatalf("BeginGroup under a context that has ended returned %v", err)
	}
	r.untouched(c)
}

// groupMoves: each history says what was done to its own resource, and that it was one
// transaction, so that any of the resources can be asked for its outcome.
func groupMoves[Tx any](r groupRun[Tx]) {
	claims := r.claimAll(grantOf("c", 7), grantOf("a", 5), grantOf("b", 6))
	txn := r.beginGroup(claims...)
	for range claims {
		r.noError(txn.Run(r.ctx, r.add(key, 1)))
	}
	moved, err := txn.Commit(r.ctx, []storage.Move{record("c"), record("a"), record("b")})
	r.noError(err)
	r.sameLength(moved, claims)
	r.holds(key, 3)
	for i, m := range moved {
		name := claims[i].Grant.Resource
		r.at(m, storage.KindWrite)
		if m.Grant != claims[i].Grant || m.Seq != claims[i].Seq+1 || m.Tx != moved[0].Tx {
			r.Fatalf("a group moved %+v to %+v", claims[i], m)
		}
		if ops := r.last(name).Ops; len(ops) != 1 || ops[0].ID != name {
			r.Fatalf("the entry of %s has the operations %+v", name, ops)
		}
		r.resolves(storage.InDoubt{Claims: claims[i : i+1], Tx: m.Tx}, true)
	}
}

func groupSuperseded[Tx any](r groupRun[Tx]) {
	claims := r.claimAll(grantOf("a", 5), grantOf("b", 6), grantOf("c", 7))
	txn := r.beginGroup(claims...)
	r.noError(txn.Run(r.ctx, r.get(key, new(int64))))
	newer := r.claim(grantOf("b", 8))
	_, err := r.finish(r.ctx, txn, r.set(key, 1))
	r.rejectedAll(err, claims, newer)
}

// rejectedAll checks that a transaction under claims, the second of which newer has
// superseded, was rejected for that one and did nothing, and that the others can go on.
func (r groupRun[Tx]) rejectedAll(err error, claims []storage.Claim, newer storage.Claim) {
	r.Helper()
	r.rejected(err, claims[1].Grant, storage.ReasonStale)
	r.holds(key, 0)
	r.at(newer, storage.KindClaim)
	_, err = r.finish(r.ctx, r.beginGroup(claims[0], claims[2]), r.set(key, 1))
	r.noError(err)
	r.holds(key, 1)
}

// groupRuledOut: any of the resources can be asked for the outcome, and may be voided by that. So each is
// claimed again, and those that were not voided are where they were.
func groupRuledOut[Tx any](r groupRun[Tx]) {
	grants := []fence.Grant{grantOf("a", 5), grantOf("b", 6), grantOf("c", 7)}
	claims := r.claimAll(grants...)
	for asked, c := range claims {
		txn := r.beginGroup(claims...)
		r.noError(txn.Run(r.ctx, r.get(key, new(int64))))
		r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: c.Tx + 1}, false)
		_, err := r.finish(r.ctx, txn, r.set(key, 1))
		r.rejected(err, c.Grant, storage.ReasonOvertaken)
		again := r.claimAll(grants...)
		for i := range again {
			if moved := again[i].Position != claims[i].Position; moved != (i == asked) {
				r.Fatalf("%s was asked: %+v, and then %+v", c.Grant.Resource, claims[i], again[i])
			}
		}
		claims = again
	}
	r.holds(key, 0)
	_, err := r.finish(r.ctx, r.beginGroup(claims...), r.set(key, 1))
	r.noError(err)
	r.holds(key, 1)
}

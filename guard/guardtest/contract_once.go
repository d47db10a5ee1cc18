package guardtest

import (
	"bytes"
	"context"
	"errors"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

func onceParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{"Keep_IsRecalledOnceCommitted", keepRecalled[Tx]},
		{"Keep_RejectsAnotherRequest", keepOtherRequest[Tx]},
		{"Keep_IsOfEveryClaimsResource", keepSeveral[Tx]},
		{"Keep_OfAnotherMoveIsOfItsResource", keepApart[Tx]},
		{"Keep_GoesWithTheTransaction", keepUncommitted[Tx]},
		{"Recall_UnderAMovedFenceIsRejected", recallMoved[Tx]},
	}
}

// once is a key with a request.
func once(key string, request byte) storage.OnceKey {
	return storage.OnceKey{Key: key, Request: [32]byte{request}}
}

// kept is a move that keeps result under k.
func kept(k storage.OnceKey, result []byte) storage.Move {
	return storage.Move{Ops: []storage.OpRecord{{ID: k.Key}}, Kept: []storage.Kept{{Key: k, Result: result}}}
}

// keep keeps result under key in a transaction of its own.
func (r *run[Tx]) keep(k storage.OnceKey, result []byte, claims ...storage.Claim) []storage.Claim {
	r.Helper()
	txn := r.begin(claims...)
	r.noError(txn.Run(r.ctx, r.add(key, 1)))
	moved, err := txn.Commit(r.ctx, moves(len(claims), kept(k, result)))
	r.noError(err)
	r.sameLength(moved, claims)
	return moved
}

// recalls checks what is recalled.
func (r *run[Tx]) recalls(k storage.OnceKey, want []byte, found bool, claims ...storage.Claim) {
	r.Helper()
	result, ok, err := r.Store.Recall(r.ctx, k, claims...)
	r.noError(err)
	if ok != found || !bytes.Equal(result, want) || (result == nil) != (want == nil) {
		r.Fatalf("recalled %q (%v), want %q (%v)", result, ok, want, found)
	}
}

func keepRecalled[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	r.recalls(once("a", 1), nil, false, c)
	c = r.keep(once("a", 1), []byte(`{"left":3}`), c)[0]
	c = r.keep(once("b", 1), nil, c)[0]
	odd := once("Ünï 'c\" \\ --", 1)
	c = r.keep(odd, []byte(`"'\\"`), c)[0]
	for range 2 {
		r.recalls(once("a", 1), []byte(`{"left":3}`), true, c)
		r.recalls(once("b", 1), nil, true, c)
		r.recalls(odd, []byte(`"'\\"`), true, c)
		r.recalls(once("A", 1), nil, false, c)
		c = r.claim(grant(8)) // a newer holder recalls it as well
	}
	r.holds(key, 3)
}

func keepOtherRequest[Tx any](r *run[Tx]) {
	c := r.keep(once("a", 1), []byte(`1`), r.claim(grant(7)))[0]
	_, found, err := r.Store.Recall(r.ctx, once("a", 2), c)
	var reuse *guard.KeyReusedError
	if found || !errors.Is(err, guard.ErrKeyReused) || !errors.As(err, &reuse) || reuse.Resource != resource || reuse.Key != "a" {
		r.Fatalf("another request under the same key was answered with %v, %v", found, err)
	}
}

func keepSeveral[Tx any](r *run[Tx]) {
	moved := r.keep(once("a", 1), []byte(`1`), r.claim(grantOf("x", 1)), r.claim(grantOf("y", 2)))
	r.recalls(once("a", 1), []byte(`1`), true, moved...)
	r.recalls(once("a", 1), []byte(`1`), true, moved[1])
	z := r.claim(grantOf("z", 3))
	r.recalls(once("a", 1), []byte(`1`), true, z, moved[1])
	if _, _, err := r.Store.Recall(r.ctx, once("a", 2), z, moved[1]); !errors.Is(err, guard.ErrKeyReused) {
		r.Fatalf("one of two resources has the key for another request: %v", err)
	}
	r.recalls(once("a", 1), nil, false, z)
}

func keepApart[Tx any](r *run[Tx]) {
	txn := r.begin(r.claimAll(grantOf("y", 2), grantOf("x", 1))...)
	r.noError(txn.Run(r.ctx, r.add(key, 1)))
	moved, err := txn.Commit(r.ctx, []storage.Move{kept(once("a", 1), []byte(`1`)), kept(once("b", 1), []byte(`2`))})
	r.noError(err)
	for i, has := range [][2]bool{{true, false}, {false, true}} {
		_, a, err := r.Store.Recall(r.ctx, once("a", 1), moved[i])
		r.noError(err)
		_, b, err := r.Store.Recall(r.ctx, once("b", 1), moved[i])
		r.noError(err)
		if [2]bool{a, b} != has {
			r.Fatalf("%s has the keys a, b: %v, want %v", moved[i].Grant.Resource, [2]bool{a, b}, has)
		}
	}
}

func keepUncommitted[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	r.noError(txn.Run(r.ctx, r.add(key, 1)))
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := txn.Commit(ctx, []storage.Move{kept(once("a", 1), []byte(`1`))}); err == nil {
		r.Fatal("Commit under a cancelled context returned nil")
	}
	r.recalls(once("a", 1), nil, false, c)
	c = r.keep(once("a", 2), nil, c)[0]
	r.recalls(once("a", 2), nil, true, c)
}

// recallMoved: an answer would be a superseded grant's, or rest on a move that was not acknowledged
// to it, and may be lost.
func recallMoved[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	gone := r.keep(once("a", 1), nil, c)[0]
	gone.Tx++ // the claim's transaction is lost, and another has its place
	for claim, want := range map[storage.Claim]storage.Reason{c: storage.ReasonOvertaken, gone: storage.ReasonWentBack} {
		_, found, err := r.Store.Recall(r.ctx, once("a", 1), claim)
		r.rejected(err, grant(7), want)
		if found {
			r.Fatal("rejected, and found")
		}
	}
	r.claim(grant(8))
	_, _, err := r.Store.Recall(r.ctx, once("a", 1), c)
	r.rejected(err, grant(7), storage.ReasonStale)

	x := r.keep(once("a", 1), nil, r.claim(grantOf("x", 1)))[0]
	y := r.claim(grantOf("y", 2))
	r.recalls(once("a", 1), nil, true, x, y)
	r.claim(grantOf("y", 3))
	_, _, err = r.Store.Recall(r.ctx, once("a", 1), x, y)
	r.rejected(err, grantOf("y", 2), storage.ReasonStale)
	_, _, err = r.Store.Recall(r.ctx, once("a", 2), x, y)
	r.rejected(err, grantOf("y", 2), storage.ReasonStale)
	r.recalls(once("b", 1), nil, false, x, y) // that its transaction can't commit is its seal's to say
}

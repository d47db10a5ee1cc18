package guardtest

import (
	"bytes"
	"errors"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

func onceParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{name: "Keep_IsRecalledForItsRequest", run: keepRecalled[Tx]},
		{name: "Keep_IsOfItsMovesResource", run: keepApart[Tx]},
		{name: "Recall_UnderAMovedFenceIsRejected", run: recallMoved[Tx]},
	}
}

// once is a key with a request.
func once(key string, request byte) storage.OnceKey {
	return storage.OnceKey{Key: key, Request: [32]byte{request}}
}

// kept is a move that keeps result under k.
func kept(k storage.OnceKey, result []byte) storage.Move {
	return storage.Move{Kept: []storage.Kept{{Key: k, Result: result}}}
}

// keep commits moves in a transaction of its own.
func (r *run[Tx]) keep(claims []storage.Claim, moves ...storage.Move) []storage.Claim {
	r.Helper()
	txn := r.begin(claims...)
	r.noError(txn.Run(r.ctx, r.add(key, 1)))
	moved, err := txn.Commit(r.ctx, moves)
	r.noError(err)
	r.sameLength(moved, claims)
	return moved
}

// recalls checks what is recalled.
func (r *run[Tx]) recalls(k storage.OnceKey, want []byte, found bool, claims ...storage.Claim) {
	r.Helper()
	result, ok, err := r.Store.Recall(r.ctx, k, claims...)
	r.noError(err)
	r.check(ok == found && bytes.Equal(result, want) && (result == nil) == (want == nil), "recalled %q (%v), want %q (%v)", result, ok, want, found)
}

// reused checks that k was kept for another request.
func (r *run[Tx]) reused(k storage.OnceKey, resource string, claims ...storage.Claim) {
	r.Helper()
	_, found, err := r.Store.Recall(r.ctx, k, claims...)
	var reuse *storage.KeyReusedError
	r.check(!found && errors.Is(err, guard.ErrKeyReused) && errors.As(err, &reuse) && reuse.Resource == resource && reuse.Key == k.Key,
		"another request under the same key was answered with %v, %v", found, err)
}

func keepRecalled[Tx any](r *run[Tx]) {
	c := r.claimAll(grant(7))
	r.recalls(once("a", 1), nil, false, c...)
	odd := once("Ünï 'c\" \\ --", 1)
	c = r.keep(c, kept(once("a", 1), []byte(`{"left":3}`)))
	c = r.keep(c, kept(once("b", 1), nil))
	c = r.keep(c, kept(odd, []byte(`"'\\"`)))
	for range 2 {
		r.recalls(once("a", 1), []byte(`{"left":3}`), true, c...)
		r.recalls(once("b", 1), nil, true, c...)
		r.recalls(odd, []byte(`"'\\"`), true, c...)
		r.recalls(once("A", 1), nil, false, c...)
		r.reused(once("a", 2), resource, c...)
		c = r.claimAll(grant(8)) // a newer holder recalls it as well
	}
	r.holds(key, 3)
}

func keepApart[Tx any](r *run[Tx]) {
	c := r.keep(r.claimAll(grantOf("y", 2), grantOf("x", 1)), kept(once("a", 1), []byte(`1`)), kept(once("b", 1), []byte(`2`)))
	y, x, z := c[0], c[1], r.claim(grantOf("z", 3))
	r.recalls(once("a", 1), []byte(`1`), true, y)
	r.recalls(once("b", 1), nil, false, y)
	r.recalls(once("a", 1), nil, false, x, z)
	r.recalls(once("b", 1), []byte(`2`), true, z, x) // one of two suffices
	r.reused(once("b", 2), "x", z, x)
}

// recallMoved: an answer would be a superseded grant's, or rest on a move that was not acknowledged
// to it, and may be lost.
func recallMoved[Tx any](r *run[Tx]) {
	rejects := func(k storage.OnceKey, which int, want storage.Reason, claims ...storage.Claim) {
		r.Helper()
		_, found, err := r.Store.Recall(r.ctx, k, claims...)
		r.rejected(err, claims[which].Grant, want)
		r.check(!found, "rejected, and found")
	}
	c := r.claim(grant(7))
	gone := r.keep([]storage.Claim{c}, kept(once("a", 1), nil))[0]
	gone.Tx++ // the claim's transaction is lost, and another has its place
	rejects(once("a", 1), 0, storage.ReasonOvertaken, c)
	rejects(once("a", 1), 0, storage.ReasonWentBack, gone)
	r.claim(grant(8))
	rejects(once("a", 1), 0, storage.ReasonStale, c)

	x, y := r.keep(r.claimAll(grantOf("x", 1)), kept(once("a", 1), nil))[0], r.claim(grantOf("y", 2))
	r.recalls(once("a", 1), nil, true, x, y)
	r.claim(grantOf("y", 3))
	rejects(once("a", 1), 1, storage.ReasonStale, x, y)
	rejects(once("a", 2), 1, storage.ReasonStale, x, y)
	r.recalls(once("b", 1), nil, false, x, y) // that its transaction can't commit is its seal's to say
}

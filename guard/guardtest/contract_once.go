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
		{"Keep_IsRecalledOnceCommitted_G4", keepRecalled[Tx]},
		{"Keep_RejectsAnotherRequest", keepOtherRequest[Tx]},
		{"Keep_IsOfTheResource", keepOfResource[Tx]},
		{"Keep_IsOfEveryClaimsResource_G4", keepSeveral[Tx]},
		{"Keep_GoesWithTheTransaction_G4", keepUncommitted[Tx]},
		{"Keep_OfARejectedCommitIsNotKept_G4", keepRejected[Tx]},
		{"Recall_UnderAMovedFenceIsRejected_G4", recallMoved[Tx]},
		{"Recall_CancelledIsAnError", recallCancelled[Tx]},
	}
}

// once is a key with a request.
func once(key string, request byte) storage.OnceKey {
	return storage.OnceKey{Key: key, Request: [32]byte{request}}
}

// keep keeps result under key in a transaction of its own.
func (r *run[Tx]) keep(k storage.OnceKey, result []byte, claims ...storage.Claim) []storage.Claim {
	r.Helper()
	txn := r.begin(claims...)
	r.noError(txn.Run(r.ctx, r.add(key, 1)))
	txn.Keep(k, result)
	moved, err := txn.Commit(r.ctx, []storage.OpRecord{{ID: k.Key}})
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

func keepOfResource[Tx any](r *run[Tx]) {
	r.keep(once("a", 1), nil, r.claim(grant(7)))
	other := r.claim(grantOf("sku/43", 8))
	r.recalls(once("a", 1), nil, false, other)
	other = r.keep(once("a", 2), []byte(`2`), other)[0]
	r.recalls(once("a", 2), []byte(`2`), true, other)
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

func keepUncommitted[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	r.noError(txn.Run(r.ctx, r.add(key, 1)))
	txn.Keep(once("a", 1), []byte(`1`))
	r.recalls(once("a", 1), nil, false, c)
	txn.Rollback(r.ctx)
	r.recalls(once("a", 1), nil, false, c)
	c = r.keep(once("a", 2), nil, c)[0]
	r.recalls(once("a", 2), nil, true, c)
}

func keepRejected[Tx any](r *run[Tx]) {
	old := r.begin(r.claim(grant(7)))
	r.noError(old.Run(r.ctx, r.get(key, new(int64))))
	old.Keep(once("a", 1), nil)
	c := r.claim(grant(8))
	_, err := old.Commit(r.ctx, []storage.OpRecord{{}})
	r.rejected(err, grant(7), storage.ReasonStale)
	r.recalls(once("a", 1), nil, false, c)
}

// recallMoved: what is found was kept after the claim. If the database then went
// back to just where the claim is, an answer would rest on what is gone.
func recallMoved[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	r.keep(once("a", 1), nil, c)
	_, found, err := r.Store.Recall(r.ctx, once("a", 1), c)
	r.rejected(err, grant(7), storage.ReasonOvertaken)
	if found {
		r.Fatal("rejected, and found")
	}
	r.claim(grant(8))
	_, _, err = r.Store.Recall(r.ctx, once("a", 1), c)
	r.rejected(err, grant(7), storage.ReasonStale)
}

func recallCancelled[Tx any](r *run[Tx]) {
	c := r.keep(once("a", 1), nil, r.claim(grant(7)))[0]
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, found, err := r.Store.Recall(ctx, once("a", 1), c); err == nil || found {
		r.Fatalf("recalled with a context that had ended: %v, %v", found, err)
	}
	r.recalls(once("a", 1), nil, true, c)
}

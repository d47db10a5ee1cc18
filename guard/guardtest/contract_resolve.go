package guardtest

import (
	"github.com/fencekit/fencekit/storage"
)

func resolveParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{"Resolve_OfUnsentCommitVoidsIt", resolveUnsent[Tx]},
		{"Resolve_OfAppliedCommit", resolveApplied[Tx]},
		{"Resolve_OfSupersededCommit", resolveSuperseded[Tx]},
		{"Resolve_OfSeveralClaims", resolveSeveral[Tx]},
	}
}

// resolves checks what d resolves to, and that it goes on to.
func (r *run[Tx]) resolves(d storage.InDoubt, want bool) {
	r.Helper()
	for range 2 {
		applied, err := r.Store.Resolve(r.ctx, d)
		r.noError(err)
		if applied != want {
			r.Fatalf("Resolve says applied = %v, want %v", applied, want)
		}
	}
}

// resolveUnsent: a transaction that stands before its COMMIT is as good as one
// whose COMMIT was sent and has not arrived. The store's own id of it isn't
// known here, and needs not be: the position is what is ruled out.
func resolveUnsent[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	r.noError(txn.Run(r.ctx, r.get(key, new(int64))))
	r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: c.Tx + 1}, false)
	_, err := r.finish(r.ctx, txn, r.set(key, 5))
	r.rejected(err, grant(7), storage.ReasonOvertaken)
	r.holds(key, 0)
	again := r.claim(grant(7))
	r.at(again, storage.KindVoid)
	r.write(r.set(key, 6), again)
	r.holds(key, 6)
}

func resolveApplied[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	moved := r.write(r.set(key, 5), c)
	applied := storage.InDoubt{Claims: []storage.Claim{c}, Tx: moved.Tx}
	r.resolves(applied, true)
	r.at(moved, storage.KindWrite)
	r.write(r.set(key, 6), moved)
	r.resolves(applied, true)
	r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: moved.Tx + 1}, false)
	r.holds(key, 6)
}

// resolveSuperseded: a claim took the position that a COMMIT was to take.
func resolveSuperseded[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	holder := r.claim(grant(8))
	r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: c.Tx + 1}, false)
	r.at(holder, storage.KindClaim)
	r.write(r.set(key, 1), holder)
}

// resolveSeveral: any one of the resources decides for all.
func resolveSeveral[Tx any](r *run[Tx]) {
	claims := []storage.Claim{r.claim(grantOf("a", 1)), r.claim(grantOf("b", 2))}
	moved, err := r.transact(r.ctx, r.set(key, 1), claims...)
	r.noError(err)
	r.sameLength(moved, claims)
	r.resolves(storage.InDoubt{Claims: claims, Tx: moved[0].Tx}, true)
	txn := r.begin(moved...)
	r.noError(txn.Run(r.ctx, r.get(key, new(int64))))
	r.resolves(storage.InDoubt{Claims: moved, Tx: moved[0].Tx + 1}, false)
	if _, err = r.finish(r.ctx, txn, r.set(key, 2)); err == nil {
		r.Fatal("a transaction committed that was ruled out")
	}
	r.holds(key, 1)
}

package guardtest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

func sealParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{"Begin_RejectsBadClaims", headBadClaims[Tx]},
		{"Seal_MovesByOnePosition", sealMoves[Tx]},
		{"Seal_RejectsSupersededToken", sealSuperseded[Tx]},
		{"Seal_RejectsOvertakenSibling", sealOvertaken[Tx]},
		{"Seal_RejectsWrongLastTransaction", sealWrongTx[Tx]},
		{"Seal_RejectsPositionAhead", sealAhead[Tx]},
		{"Seal_SeveralClaimsAllOrNothing", sealSeveral[Tx]},
		{"Seal_RejectsAnotherNumberOfMoves", sealOtherNumber[Tx]},
		{"Seal_ConcurrentGrantsLoseNothing", sealConcurrent[Tx]},
	}
}

func headBadClaims[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	unknown := storage.Claim{Grant: grantOf("unknown", 7), Resource: 1 << 40, Position: c.Position}
	for what, claims := range map[string][]storage.Claim{
		"no claims":      {},
		"the same twice": {c, c},
		"an unknown one": {unknown},
	} {
		if _, err := r.transact(r.ctx, r.set(key, 1), claims...); err == nil {
			r.Fatalf("%s: committed", what)
		}
	}
	r.holds(key, 0)
	r.at(c, storage.KindClaim)
}

func sealMoves[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	for i := int64(1); i <= 3; i++ {
		moved := r.write(r.set(key, i), c)
		if moved.Grant != c.Grant || moved.Resource != c.Resource || moved.Seq != c.Seq+1 || moved.Tx == c.Tx || moved.Tx == 0 {
			r.Fatalf("a commit moved %+v to %+v", c, moved)
		}
		r.holds(key, i)
		r.at(moved, storage.KindWrite)
		c = moved
	}
}

func sealSuperseded[Tx any](r *run[Tx]) {
	old := r.begin(r.claim(grant(7)))
	r.noError(old.Run(r.ctx, r.get(key, new(int64))))
	holder := r.claim(grant(8))
	_, err := r.finish(r.ctx, old, r.set(key, 1))
	if rejection := r.rejected(err, grant(7), storage.ReasonStale); rejection.Current != grant(8) {
		r.Fatalf("rejected by %v, want %v", rejection.Current, grant(8))
	}
	r.holds(key, 0)
	r.at(holder, storage.KindClaim)
}

// sealOvertaken: two transactions of one grant read, then both write.
func sealOvertaken[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	a, b := r.begin(c), r.begin(c)
	var readA, readB int64
	r.noError(a.Run(r.ctx, r.get(key, &readA)))
	r.noError(b.Run(r.ctx, r.get(key, &readB)))
	_, err := r.finish(r.ctx, a, r.set(key, readA+1))
	r.noError(err)
	_, err = r.finish(r.ctx, b, r.set(key, readB+1))
	r.rejected(err, grant(7), storage.ReasonOvertaken)
	r.holds(key, 1)
	r.write(r.add(key, 1), r.claim(grant(7)))
	r.holds(key, 2)
}

// sealWrongTx: the position is right, but another transaction made it, as when
// the database went back and the lost position was filled anew.
func sealWrongTx[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	wrong := c
	wrong.Tx++
	_, err := r.transact(r.ctx, r.set(key, 1), wrong)
	r.rejected(err, grant(7), storage.ReasonWentBack, storage.ReasonOvertaken)
	r.holds(key, 0)
	r.at(c, storage.KindClaim)
}

func sealAhead[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	ahead := c
	ahead.Seq++
	_, err := r.transact(r.ctx, r.set(key, 1), ahead)
	r.rejected(err, grant(7), storage.ReasonWentBack)
	ahead = c
	ahead.Grant = grant(8) // never claimed here: the claim was lost
	_, err = r.transact(r.ctx, r.set(key, 1), ahead)
	r.rejected(err, grant(8), storage.ReasonWentBack)
	r.holds(key, 0)
	r.at(c, storage.KindClaim)
}

func sealSeveral[Tx any](r *run[Tx]) {
	a, b, c := r.claim(grantOf("a", 5)), r.claim(grantOf("b", 6)), r.claim(grantOf("c", 7))
	moved, err := r.transact(r.ctx, r.set(key, 1), c, a, b)
	r.noError(err)
	if len(moved) != 3 || moved[0].Grant != c.Grant || moved[1].Grant != a.Grant || moved[2].Grant != b.Grant {
		r.Fatalf("the claims came back as %+v", moved)
	}
	for _, m := range moved {
		r.at(m, storage.KindWrite)
	}
	txn := r.begin(moved...)
	r.noError(txn.Run(r.ctx, r.get(key, new(int64))))
	newer := r.claim(grantOf("b", 8))
	_, err = r.finish(r.ctx, txn, r.set(key, 2))
	r.rejected(err, b.Grant, storage.ReasonStale)
	r.holds(key, 1)
	r.at(moved[0], storage.KindWrite)
	r.at(moved[1], storage.KindWrite)
	r.at(newer, storage.KindClaim)
}

func sealOtherNumber[Tx any](r *run[Tx]) {
	claims := r.claimAll(grantOf("a", 5), grantOf("b", 6))
	for _, n := range []int{1, 3} {
		txn := r.begin(claims...)
		r.noError(txn.Run(r.ctx, r.set(key, 1)))
		if _, err := txn.Commit(r.ctx, moves(n, storage.Move{})); !errors.Is(err, fence.ErrInvalid) {
			r.Fatalf("Commit of %d moves under 2 claims: %v, want fence.ErrInvalid", n, err)
		}
	}
	r.holds(key, 0)
	for _, c := range claims {
		r.at(c, storage.KindClaim)
	}
}

// sealConcurrent: several goroutines read and write under ever newer grants.
func sealConcurrent[Tx any](r *run[Tx]) {
	const workers, rounds = 6, 5
	var tokens, committed atomic.Int64
	var failure atomic.Pointer[error]
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for range rounds {
				err := r.round(fence.Token(tokens.Add(1)))
				if err == nil {
					committed.Add(1)
				} else if !errors.Is(err, guard.ErrStaleToken) {
					failure.Store(&err)
				}
			}
		})
	}
	done.Wait()
	if err := failure.Load(); err != nil {
		r.Fatalf("unexpected error: %v", *err)
	}
	r.holds(key, committed.Load())
	entries := r.entries(resource)
	r.monotone(entries)
	writes := int64(0)
	for _, e := range entries {
		if e.Kind == storage.KindWrite {
			writes++
		}
	}
	if writes != committed.Load() {
		r.Fatalf("%d writes in the history, %d were committed", writes, committed.Load())
	}
}

func (r *run[Tx]) round(token fence.Token) error {
	claims, err := r.Store.Claim(r.ctx, storage.Claim{Grant: grant(token)})
	if err != nil {
		return err
	}
	_, err = r.transact(r.ctx, r.add(key, 1), claims...)
	return err
}

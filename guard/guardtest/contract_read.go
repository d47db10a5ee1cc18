package guardtest

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

func readParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{"Read_MovesNothing", readMovesNothing[Tx]},
		{"Read_WritesNothing", readWritesNothing[Tx]},
		{"Read_RejectsSupersededClaim", readSuperseded[Tx]},
		{"Read_SupersededMeanwhileIsRejected", readSupersededMeanwhile[Tx]},
		{"Read_OvertakenBySiblingIsRejected", readOvertaken[Tx]},
		{"Read_OfAnotherPositionIsRejected", readElsewhere[Tx]},
		{"Read_OfSeveralChecksEach", readSeveral[Tx]},
		{"Read_RejectsMoves", readMoves[Tx]},
		{"Read_CancelledIsNotInDoubt", readCancelled[Tx]},
	}
}

// beginRead begins a read-only transaction, which has to succeed, and reads in it.
func (r *run[Tx]) beginRead(value *int64, claims ...storage.Claim) storage.Txn[Tx] {
	r.Helper()
	txn, err := r.Store.BeginReadOnly(r.ctx, claims...)
	r.noError(err)
	r.Cleanup(func() { txn.Rollback(context.Background()) })
	r.noError(txn.Run(r.ctx, r.get(key, value)))
	return txn
}

// reads runs op in a read-only transaction. Where the store finds a fault is its own affair.
func (r *run[Tx]) reads(op storage.Op[Tx], claims ...storage.Claim) ([]storage.Claim, error) {
	txn, err := r.Store.BeginReadOnly(r.ctx, claims...)
	if err != nil {
		return nil, err
	}
	return r.finish(r.ctx, txn, op)
}

// rejectedRead checks that Commit rejects a read-only transaction, and that this was recorded.
func (r *run[Tx]) rejectedRead(txn storage.Txn[Tx], grant fence.Grant, reasons ...storage.Reason) {
	r.Helper()
	_, err := txn.Commit(r.ctx, nil)
	if rejection := r.rejected(err, grant, reasons...); rejection.Stage != storage.StageCheck {
		r.Fatalf("rejected at stage %q, want %q", rejection.Stage, storage.StageCheck)
	}
	if all := r.rejections(grant.Resource); len(all) != 1 || all[0].Grant != grant || all[0].Stage != storage.StageCheck {
		r.Fatalf("the record of rejections is %+v", all)
	}
}

func readMovesNothing[Tx any](r *run[Tx]) {
	c := r.write(r.set(key, 3), r.claim(grant(7)))
	for range 2 {
		var value int64
		same, err := r.beginRead(&value, c).Commit(r.ctx, nil)
		r.noError(err)
		r.sameLength(same, []storage.Claim{c})
		if value != 3 || same[0] != c {
			r.Fatalf("read %d, and %+v was returned as %+v", value, c, same[0])
		}
	}
	r.at(c, storage.KindWrite)
	r.write(r.add(key, 1), c)
	r.holds(key, 4)
}

func readWritesNothing[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	if _, err := r.reads(r.set(key, 5), c); err == nil {
		r.Fatal("a write in a read-only transaction succeeded")
	}
	r.untouched(c)
}

func readSuperseded[Tx any](r *run[Tx]) {
	old := r.claim(grant(7))
	r.claim(grant(8))
	_, err := r.reads(r.get(key, new(int64)), old)
	r.rejected(err, grant(7), storage.ReasonStale)
}

func readSupersededMeanwhile[Tx any](r *run[Tx]) {
	txn := r.beginRead(new(int64), r.claim(grant(7)))
	r.claim(grant(8))
	r.rejectedRead(txn, grant(7), storage.ReasonStale)
}

// readOvertaken: another transaction of the grant commits between two reads.
func readOvertaken[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.beginRead(new(int64), c)
	moved := r.write(r.set(key, 1), c)
	r.noError(txn.Run(r.ctx, r.get(key, new(int64))))
	r.rejectedRead(txn, grant(7), storage.ReasonOvertaken)
	r.at(moved, storage.KindWrite)
}

// readElsewhere: the claim has seen a position that the fence isn't at, as when the database went
// back; or the position is right, and another transaction took it.
func readElsewhere[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	ahead, other := c, c
	ahead.Seq++
	other.Tx++
	for _, wrong := range []storage.Claim{ahead, other} {
		_, err := r.reads(r.get(key, new(int64)), wrong)
		r.rejected(err, grant(7), storage.ReasonWentBack)
	}
	r.at(c, storage.KindClaim)
}

func readSeveral[Tx any](r *run[Tx]) {
	claims := r.claimAll(grantOf("a", 5), grantOf("b", 6))
	_, err := r.reads(r.get(key, new(int64)), claims...)
	r.noError(err)
	txn := r.beginRead(new(int64), claims...)
	newer := r.claim(grantOf("b", 8))
	r.rejectedRead(txn, grantOf("b", 6), storage.ReasonStale)
	r.at(claims[0], storage.KindClaim)
	r.at(newer, storage.KindClaim)
}

func readMoves[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.beginRead(new(int64), c)
	if _, err := txn.Commit(r.ctx, []storage.Move{record("a read")}); !errors.Is(err, fence.ErrInvalid) {
		r.Fatalf("Commit of a move in a read-only transaction: %v, want fence.ErrInvalid", err)
	}
	r.at(c, storage.KindClaim)
}

func readCancelled[Tx any](r *run[Tx]) {
	txn := r.beginRead(new(int64), r.claim(grant(7)))
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	_, err := txn.Commit(ctx, nil)
	if err == nil {
		r.Fatal("Commit under a cancelled context returned nil")
	}
	if doubt := new(storage.InDoubtError); errors.As(err, &doubt) {
		r.Fatalf("nothing was written, but the outcome is in doubt: %v", err)
	}
}

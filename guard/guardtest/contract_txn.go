package guardtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

type kind string

const (
	seals kind = "Seal"
	reads kind = "Read"
)

func partsOfEachKind[Tx any]() (parts []part[Tx]) {
	for _, k := range []kind{seals, reads} {
		for _, p := range []part[Tx]{
			{name: "MovesEachFence", run: commits[Tx]},
			{name: "RejectsBadClaims", run: badClaims[Tx]},
			{name: "RejectsSupersededToken", run: superseded[Tx]},
			{name: "RejectsOvertakenSibling", run: overtaken[Tx]},
			{name: "RejectsAnotherPosition", run: elsewhere[Tx]},
			{name: "OneSupersededRejectsAll", run: oneSuperseded[Tx]},
			{name: "AnyOfItsResourcesRulesItOut", run: ruledOut[Tx]},
			{name: "CancelledDoesNothing", run: cancelled[Tx]},
		} {
			parts = append(parts, part[Tx]{string(k) + "_" + p.name, p.run, k})
		}
	}
	return parts
}

func beginAs[Tx any](ctx context.Context, r *run[Tx], claims []storage.Claim) (storage.Txn[Tx], error) {
	if r.kind == reads {
		return r.Store.BeginReadOnly(ctx, claims...)
	}
	return r.Store.Begin(ctx, claims...)
}

func (r *run[Tx]) begin(claims ...storage.Claim) storage.Txn[Tx] {
	r.Helper()
	txn, err := beginAs(r.ctx, r, claims)
	r.noError(err)
	r.Cleanup(func() { txn.Rollback(context.Background()) })
	r.noError(txn.Run(r.ctx, r.get(key)))
	return txn
}

func (r *run[Tx]) work(value int64) storage.Func[Tx] {
	if r.kind == reads {
		return r.get(key)
	}
	return r.set(key, value)
}

func (r *run[Tx]) end(txn storage.Txn[Tx], value int64) ([]storage.Claim, error) {
	if r.kind != reads {
		if err := txn.Run(r.ctx, r.set(key, value)); err != nil {
			return nil, err
		}
	}
	return txn.Commit(r.ctx, nil)
}

func (r *run[Tx]) written(value int64) int64 {
	if r.kind == reads {
		return 0
	}
	return value
}

func commits[Tx any](r *run[Tx]) {
	claims := r.claimAll(grantOf("c", 7), grantOf("a", 5), grantOf("b", 6))
	moves := []storage.Move{record("c"), record("a"), record("b")}
	if r.kind == reads {
		moves = nil
	}
	for i := range int64(3) {
		for n := range moves {
			moves[n].Hash = new([32]byte)
		}
		txn := r.begin(claims...)
		r.noError(txn.Run(r.ctx, r.work(i+1)))
		moved, err := txn.Commit(r.ctx, moves)
		r.noError(err)
		r.sameLength(moved, claims)
		r.holds(key, r.written(i+1))
		for n, m := range moved {
			c := claims[n]
			if r.kind == reads {
				r.check(m == c, "a read moved %+v to %+v", c, m)
				r.at(c, storage.KindClaim)
				continue
			}
			r.check(m.Grant == c.Grant && m.Resource == c.Resource && m.Seq == c.Seq+1 && m.Tx != c.Tx && m.Tx == moved[0].Tx,
				"a commit moved %+v to %+v", c, m)
			e := r.at(m, storage.KindWrite)
			r.check(len(e.Ops) == 1 && e.Ops[0].ID == c.Grant.Resource, "the entry of %s has the operations %+v", c.Grant.Resource, e.Ops)
			r.check(bytes.Equal(e.Hash, moves[n].Hash[:]), "Commit said that the hash of %s is %x, its entry's is %x", c.Grant.Resource, *moves[n].Hash, e.Hash)
			r.resolves(storage.InDoubt{Claims: claims[n : n+1], Tx: m.Tx}, true)
		}
		claims = moved
	}
}

func badClaims[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	unknown := storage.Claim{Grant: grantOf("unknown", 7), Resource: 1 << 40, Position: c.Position}
	for what, claims := range map[string][]storage.Claim{"no claims": {}, "the same twice": {c, c}, "an unknown one": {unknown}} {
		_, err := r.transact(r.ctx, r.work(1), claims...)
		r.check(err != nil, "%s: committed", what)
	}
	r.untouched(c)
}

func superseded[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	holder := r.claim(grant(8))
	_, err := r.end(txn, 1)
	rejection := r.rejected(err, grant(7), storage.ReasonStale)
	r.check(rejection.Current == grant(8), "rejected by %v, want %v", rejection.Current, grant(8))
	r.check(r.kind != reads || rejection.Stage == storage.StageCheck, "rejected at stage %q", rejection.Stage)
	records := r.rejections(resource)
	r.check(len(records) == 1 && records[0].Grant == grant(7) && records[0].Stage == rejection.Stage, "%+v was recorded as %+v", rejection, records)
	_, err = r.transact(r.ctx, r.work(2), c)
	r.rejected(err, grant(7), storage.ReasonStale)
	r.untouched(holder)
}

func overtaken[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	moved := r.write(r.add(key, 1), c)
	_, err := r.end(txn, 1)
	r.rejected(err, grant(7), storage.ReasonOvertaken)
	r.at(moved, storage.KindWrite)
	r.write(r.add(key, 1), r.claim(grant(7)))
	r.holds(key, 2)
}

func elsewhere[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	ahead, other, lost := c, c, c
	ahead.Seq++
	other.Tx++
	lost.Grant = grant(8)
	for _, wrong := range []storage.Claim{ahead, other, lost} {
		_, err := r.transact(r.ctx, r.work(1), wrong)
		r.rejected(err, wrong.Grant, storage.ReasonWentBack)
	}
	r.untouched(c)
}

func oneSuperseded[Tx any](r *run[Tx]) {
	claims := r.claimAll(grantOf("a", 5), grantOf("b", 6), grantOf("c", 7))
	txn := r.begin(claims...)
	newer := r.claim(grantOf("b", 8))
	_, err := r.end(txn, 1)
	r.rejected(err, claims[1].Grant, storage.ReasonStale)
	r.holds(key, 0)
	r.at(newer, storage.KindClaim)
	_, err = r.transact(r.ctx, r.work(2), claims[0], claims[2])
	r.noError(err)
	r.holds(key, r.written(2))
}

// An open transaction stands for one whose COMMIT has not arrived. Its position is ruled out, and other resources
// stay.
func ruledOut[Tx any](r *run[Tx]) {
	claims := r.claimAll(grantOf("a", 5), grantOf("b", 6), grantOf("c", 7))
	for asked, c := range claims {
		txn := r.begin(claims...)
		r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: c.Tx + 1}, false)
		_, err := r.end(txn, 1)
		r.rejected(err, c.Grant, storage.ReasonOvertaken)
		again := r.claimAll(grantsOf(claims)...)
		r.at(again[asked], storage.KindVoid)
		for i := range again {
			moved := again[i].Position != claims[i].Position
			r.check(moved == (i == asked), "%s was asked: %+v, and then %+v", c.Grant.Resource, claims[i], again[i])
		}
		claims = again
	}
	r.holds(key, 0)
	_, err := r.transact(r.ctx, r.work(2), claims...)
	r.noError(err)
	r.holds(key, r.written(2))
}

// What was not sent isn't in doubt, and what it was to keep isn't kept.
func cancelled[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	_, err := r.transact(r.ended(), r.work(5), c)
	r.check(err != nil, "a transaction under a cancelled context committed")
	txn := r.begin(c)
	r.noError(txn.Run(r.ctx, r.work(5)))
	var moves []storage.Move
	if r.kind != reads {
		moves = []storage.Move{kept(once("a", 1), nil)}
	}
	_, err = txn.Commit(r.ended(), moves)
	r.check(err != nil, "Commit under a cancelled context returned nil")
	r.check(!errors.As(err, new(*storage.InDoubtError)), "nothing was sent, but the outcome is in doubt: %v", err)
	r.recalls(once("a", 1), nil, false, c)
	r.untouched(c)
}

func (r *run[Tx]) resolves(d storage.InDoubt, want bool) {
	r.Helper()
	for range 2 {
		applied, err := r.Store.Resolve(r.ctx, d)
		r.noError(err)
		r.check(applied == want, "Resolve says applied = %v, want %v", applied, want)
	}
}

func txnParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{name: "Txn_SeesItsOwnWrites", run: txnOwnWrites[Tx]},
		{name: "Txn_RunsAndRecordsSeveralOperations", run: txnSeveral[Tx]},
		{name: "Txn_IsUnusableAfterItsEnd", run: txnEnded[Tx]},
		{name: "Rollback_Undoes", run: rollbackUndoes[Tx]},
		{name: "Run_ErrorLeavesNothing", run: leavesNothing[Tx](func() error { return errOfRun })},
		{name: "Run_PanicLeavesNothing", run: leavesNothing[Tx](func() error { panic(errOfRun) })},
		{name: "Run_GoexitLeavesNothing", run: leavesNothing[Tx](func() error { runtime.Goexit(); return nil })},
		{name: "Read_WritesNothing", run: readWritesNothing[Tx], kind: reads},
		{name: "Look_FindsWhatIsThere", run: lookFinds[Tx]},
		{name: "Look_MovedMeanwhileIsNoRejection", run: lookMoved[Tx], kind: reads},
		{name: "Resolve_SaysWhichTransactionTookThePosition", run: resolveTaken[Tx]},
	}
}

func txnOwnWrites[Tx any](r *run[Tx]) {
	r.write(func(ctx context.Context, tx Tx) error {
		if err := r.Set(ctx, tx, key, 3); err != nil {
			return err
		}
		if got, err := r.Get(ctx, tx, key); err != nil || got != 3 {
			return fmt.Errorf("read %d (%v) after writing 3", got, err)
		}
		if got, err := r.Read(ctx, key); err != nil || got != 0 {
			return fmt.Errorf("others read %d (%v) before COMMIT", got, err)
		}
		return nil
	}, r.claim(grant(7)))
	r.holds(key, 3)
}

func txnSeveral[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	ops := r.at(c, storage.KindClaim).Ops
	r.check(len(ops) == 0, "a claim has the operations %+v", ops)
	want := []storage.OpRecord{
		{ID: "order 1", Name: `deduct "2"`, Attrs: map[string]string{"qty": "2", "ünï": `\`, "empty": ""}}, {ID: "2"}, {},
	}
	txn := r.begin(c)
	for range want {
		r.noError(txn.Run(r.ctx, r.add(key, 1)))
	}
	moved, err := txn.Commit(r.ctx, []storage.Move{{Ops: want}})
	r.noError(err)
	r.sameLength(moved, []storage.Claim{c})
	r.holds(key, 3)
	r.check(moved[0].Seq == c.Seq+1, "several operations moved the fence from %d to %d", c.Seq, moved[0].Seq)
	ops = r.at(moved[0], storage.KindWrite).Ops
	r.check(reflect.DeepEqual(ops, want), "the operations are %+v, want %+v", ops, want)
}

func txnEnded[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	committed, rolledBack := r.begin(c), r.begin(c)
	_, err := r.end(committed, 1)
	r.noError(err)
	rolledBack.Rollback(r.ctx)
	for what, txn := range map[string]storage.Txn[Tx]{"Commit": committed, "Rollback": rolledBack} {
		err := txn.Run(r.ctx, r.set(key, 9))
		r.check(errors.Is(err, guard.ErrTxEnded), "Run after %s: %v, want guard.ErrTxEnded", what, err)
		_, err = txn.Commit(r.ctx, nil)
		r.check(errors.Is(err, guard.ErrTxEnded), "Commit after %s: %v, want guard.ErrTxEnded", what, err)
		txn.Rollback(r.ctx)
	}
	r.holds(key, 1)
}

func rollbackUndoes[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	for _, ctx := range []context.Context{r.ctx, r.ended()} {
		txn := r.begin(c)
		r.noError(txn.Run(r.ctx, r.set(key, 5)))
		txn.Rollback(ctx)
		txn.Rollback(ctx)
	}
	r.untouched(c)
}

var errOfRun = errors.New("out of stock")

func leavesNothing[Tx any](ends func() error) func(r *run[Tx]) {
	return func(r *run[Tx]) {
		c := r.claim(grant(7))
		txn := r.begin(c)
		var met any
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			met = "Goexit"
			defer func() {
				if panicked := recover(); panicked != nil {
					met = panicked
				}
			}()
			met = txn.Run(r.ctx, storage.Func[Tx](func(ctx context.Context, tx Tx) error {
				return errors.Join(r.Set(ctx, tx, key, 5), ends())
			}))
		}()
		<-ended
		err, _ := met.(error)
		r.check(met == "Goexit" || errors.Is(err, errOfRun), "Run ended with %v, want what the operation ended with", met)
		_, err = txn.Commit(r.ctx, []storage.Move{{}})
		r.check(err != nil, "Commit after an operation that didn't succeed returned nil")
		txn.Rollback(r.ctx)
		r.untouched(c)
	}
}

func readWritesNothing[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	_, err := r.transact(r.ctx, r.set(key, 5), c)
	r.check(err != nil, "a write in a read-only transaction succeeded")
	r.untouched(c)
}

func (r *run[Tx]) look(seen ...storage.Claim) []storage.Claim {
	r.Helper()
	claims, err := r.Store.Look(r.ctx, seen...)
	r.noError(err)
	for i, c := range claims {
		r.check(c.Looked, "a claim of Look isn't marked")
		claims[i].Looked = false
	}
	return claims
}

func lookFinds[Tx any](r *run[Tx]) {
	seen := unseen(grantOf("b", 0), grantOf("a", 0))
	a := r.claim(grantOf("a", 6))
	r.check(r.look(seen...) == nil, "a resource without a claim was looked at")
	claimed := r.claim(grantOf("b", 5))
	b := r.write(r.set(key, 1), claimed)
	for _, seen[0].Position = range []storage.Position{{}, claimed.Position, b.Position} {
		r.check(slices.Equal(r.look(seen...), []storage.Claim{b, a}), "%+v isn't what Look found", []storage.Claim{b, a})
	}
	for _, seen[0].Position = range []storage.Position{{Seq: 1, Tx: b.Tx}, {Seq: 2, Tx: b.Tx + 1}, {Seq: 3, Tx: b.Tx}} {
		r.check(r.look(seen...) == nil, "%+v has gone, and was looked at", seen[0].Position)
	}
	_, err := r.Store.Look(r.ended(), seen...)
	r.check(errors.Is(err, context.Canceled), "want context.Canceled, got: %v", err)
	for _, invalid := range [][]storage.Claim{nil, {seen[0], seen[0]}, unseen(grantOf("", 0))} {
		_, err = r.Store.Look(r.ctx, invalid...)
		r.check(errors.Is(err, guard.ErrInvalid), "%+v: want guard.ErrInvalid, got: %v", invalid, err)
	}
	r.at(a, storage.KindClaim)
	r.at(b, storage.KindWrite)
}

func lookMoved[Tx any](r *run[Tx]) {
	r.claim(grantOf("a", 5))
	b := r.claim(grantOf("b", 6))
	for what, move := range []func(){
		func() { r.write(r.set(key, 1), b) },
		func() { r.claim(grantOf("b", b.Grant.Token+1)) },
		func() { r.resolves(storage.InDoubt{Claims: []storage.Claim{b}, Tx: b.Tx + 1}, false) },
	} {
		for _, begun := range []bool{true, false} {
			looked, err := r.Store.Look(r.ctx, unseen(grantOf("a", 0), grantOf("b", 0))...)
			r.noError(err)
			_, err = r.transact(r.ctx, r.get(key), looked...)
			r.noError(err)
			if begun {
				txn := r.begin(looked...)
				move()
				_, err = r.end(txn, 0)
			} else {
				move()
				_, err = r.transact(r.ctx, r.get(key), looked...)
			}
			var again interface{ Retryable() bool }
			r.check(errors.Is(err, storage.ErrMoved) && errors.As(err, &again) && again.Retryable(), "move %d: want a retryable ErrMoved, got: %v", what, err)
			b = r.claim(r.entries("b")[len(r.entries("b"))-1].Grant)
		}
	}
	r.check(len(r.rejections("a"))+len(r.rejections("b")) == 0, "what was nobody's grant was rejected: %+v", r.rejections("b"))
}

func resolveTaken[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	moved := r.write(r.set(key, 5), c)
	for range 2 {
		r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: moved.Tx}, true)
		r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: moved.Tx + 1}, false)
		r.at(moved, storage.KindWrite)
		c, moved = moved, r.write(r.set(key, 6), moved)
	}
	holder := r.claim(grant(8)) // takes the position that a COMMIT was to take
	r.resolves(storage.InDoubt{Claims: []storage.Claim{moved}, Tx: moved.Tx + 1}, false)
	r.at(holder, storage.KindClaim)
}

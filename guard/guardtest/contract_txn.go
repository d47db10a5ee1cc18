package guardtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// txnParts are about transactions that write, and their outcomes.
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

// errOfRun is how an operation ends.
var errOfRun = errors.New("out of stock")

// leavesNothing: the caller of Run meets how the operation ended, and nothing can commit after it.
func leavesNothing[Tx any](ends func() error) func(r *run[Tx]) {
	return func(r *run[Tx]) {
		c := r.claim(grant(7))
		txn := r.begin(c)
		var met any // "Goexit" unless Run returned or panicked
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

func resolveTaken[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	moved := r.write(r.set(key, 5), c)
	for range 2 {
		r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: moved.Tx}, true)
		r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: moved.Tx + 1}, false)
		r.at(moved, storage.KindWrite)
		c, moved = moved, r.write(r.set(key, 6), moved)
	}
	holder := r.claim(grant(8)) // a claim takes the position that a COMMIT was to take
	r.resolves(storage.InDoubt{Claims: []storage.Claim{moved}, Tx: moved.Tx + 1}, false)
	r.at(holder, storage.KindClaim)
}

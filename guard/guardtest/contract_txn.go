package guardtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

func txnParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{"Txn_SeesItsOwnWrites", txnOwnWrites[Tx]},
		{"Txn_RunsSeveralOperations", txnGroup[Tx]},
		{"Rollback_Undoes", rollbackUndoes[Tx]},
		{"Run_ErrorLeavesNothing", runError[Tx]},
		{"Run_PanicLeavesNothing", runPanic[Tx]},
		{"Run_GoexitLeavesNothing", runGoexit[Tx]},
		{"Txn_IsUnusableAfterItsEnd", txnEnded[Tx]},
		{"Begin_CancelledDoesNothing", beginCancelled[Tx]},
		{"Commit_CancelledDoesNothing", commitCancelled[Tx]},
	}
}

func txnOwnWrites[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	r.write(storage.Func[Tx](func(ctx context.Context, tx Tx) error {
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
	}), c)
	r.holds(key, 3)
}

func txnGroup[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	for range 3 {
		r.noError(txn.Run(r.ctx, r.add(key, 1)))
	}
	moved, err := txn.Commit(r.ctx, []storage.Move{{Ops: []storage.OpRecord{{ID: "1"}, {ID: "2"}, {ID: "3"}}}})
	r.noError(err)
	r.sameLength(moved, []storage.Claim{c})
	r.holds(key, 3)
	if moved[0].Seq != c.Seq+1 {
		r.Fatalf("a group moved the fence from %d to %d", c.Seq, moved[0].Seq)
	}
	if ops := r.last(resource).Ops; len(ops) != 3 || ops[0].ID != "1" || ops[2].ID != "3" {
		r.Fatalf("the entry has the operations %+v", ops)
	}
}

// untouched checks that nothing was written and that c is still good.
func (r *run[Tx]) untouched(c storage.Claim) {
	r.Helper()
	r.holds(key, 0)
	r.at(c, storage.KindClaim)
	r.write(r.add(key, 1), c)
	r.holds(key, 1)
}

func rollbackUndoes[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	for _, ctx := range []context.Context{r.ctx, ended} {
		txn := r.begin(c)
		r.noError(txn.Run(r.ctx, r.set(key, 5)))
		txn.Rollback(ctx)
		txn.Rollback(ctx)
	}
	r.untouched(c)
}

func runError[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	failure := errors.New("out of stock")
	err := txn.Run(r.ctx, storage.Func[Tx](func(ctx context.Context, tx Tx) error {
		return errors.Join(r.Set(ctx, tx, key, 5), failure)
	}))
	if !errors.Is(err, failure) {
		r.Fatalf("Run returned %v, want the operation's error", err)
	}
	if _, err := txn.Commit(r.ctx, []storage.Move{{}}); err == nil {
		r.Fatal("Commit after a failed operation returned nil")
	}
	txn.Rollback(r.ctx)
	r.untouched(c)
}

func runPanic[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				r.Fatalf("recovered %v, want the operation's own panic", got)
			}
		}()
		_ = txn.Run(r.ctx, storage.Func[Tx](func(ctx context.Context, tx Tx) error {
			if err := r.Set(ctx, tx, key, 5); err != nil {
				return err
			}
			panic("boom")
		}))
	}()
	r.commitFails(txn)
	r.untouched(c)
}

func runGoexit[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	returned, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		_ = txn.Run(r.ctx, storage.Func[Tx](func(ctx context.Context, tx Tx) error {
			if err := r.Set(ctx, tx, key, 5); err != nil {
				return err
			}
			runtime.Goexit()
			return nil
		}))
		returned = true
	}()
	<-ended
	if returned {
		r.Fatal("Run returned, want it to let Goexit pass")
	}
	r.commitFails(txn)
	r.untouched(c)
}

// commitFails checks that nothing of a group can commit after an operation
// didn't return.
func (r *run[Tx]) commitFails(txn storage.Txn[Tx]) {
	r.Helper()
	if _, err := txn.Commit(r.ctx, []storage.Move{{}}); err == nil {
		r.Fatal("Commit after an operation that didn't succeed returned nil")
	}
	txn.Rollback(r.ctx)
}

func txnEnded[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	committed, rolledBack := r.begin(c), r.begin(c)
	_, err := r.finish(r.ctx, committed, r.set(key, 1))
	r.noError(err)
	rolledBack.Rollback(r.ctx)
	for what, txn := range map[string]storage.Txn[Tx]{"Commit": committed, "Rollback": rolledBack} {
		if err := txn.Run(r.ctx, r.set(key, 9)); !errors.Is(err, guard.ErrTxEnded) {
			r.Fatalf("Run after %s: %v, want guard.ErrTxEnded", what, err)
		}
		if _, err := txn.Commit(r.ctx, nil); !errors.Is(err, guard.ErrTxEnded) {
			r.Fatalf("Commit after %s: %v, want guard.ErrTxEnded", what, err)
		}
		txn.Rollback(r.ctx)
	}
	r.holds(key, 1)
}

func beginCancelled[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := r.transact(ctx, r.set(key, 5), c); err == nil {
		r.Fatal("a transaction under a cancelled context committed")
	}
	r.untouched(c)
}

func commitCancelled[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	r.noError(txn.Run(r.ctx, r.set(key, 5)))
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	_, err := txn.Commit(ctx, []storage.Move{{}})
	if err == nil {
		r.Fatal("Commit under a cancelled context returned nil")
	}
	var doubt *storage.InDoubtError
	if errors.As(err, &doubt) {
		r.Fatalf("nothing was sent, but the outcome is in doubt: %v", err)
	}
	r.untouched(c)
}

package guardtest

import (
	"context"
	"errors"
	"runtime"

	"github.com/fencekit/fencekit/storage"
)

func memberParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{"Member_SharesOnePosition_G2", memberShares[Tx]},
		{"Member_ErrorUndoesItAlone_G4", memberEnds[Tx](func() error { return errMember }, false)},
		{"Member_PanicUndoesItAlone_G4", memberEnds[Tx](func() error { panic("boom") }, true)},
		{"Member_GoexitUndoesItAlone_G4", memberEnds[Tx](func() error { runtime.Goexit(); return nil }, true)},
		{"Member_EndOfItsContextUndoesItAlone_G4", memberCtxEnds[Tx]},
		{"Member_EndOfItsContextHasNoEffectLater_G4", memberCtxEndsLater[Tx]},
		{"Member_EndOfTheWholeEndsAll_G4", memberWholeEnds[Tx]},
		{"Member_TxIsUnusableAfterwards", memberTxEnds[Tx]},
	}
}

var errMember = errors.New("out of stock")

// whole returns a context without values, as RunMember needs it.
func (r *run[Tx]) whole() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

// member runs op as a member that has to succeed.
func (r *run[Tx]) member(txn storage.Txn[Tx], op storage.Op[Tx]) {
	r.Helper()
	whole, cancel := r.whole()
	defer cancel()
	r.noError(txn.RunMember(r.ctx, whole, op))
	if txn.Over() != nil {
		r.Fatalf("a member has succeeded, and the transaction is over: %v", txn.Over())
	}
}

// commits commits members of c that have written want to key.
func (r *run[Tx]) commits(txn storage.Txn[Tx], c storage.Claim, want int64) {
	r.Helper()
	once := storage.OnceKey{Key: "order-7"}
	moved, err := txn.Commit(r.ctx, []storage.Move{{Ops: []storage.OpRecord{{ID: "1"}, {ID: "2"}}, Kept: []storage.Kept{{Key: once}}}})
	r.noError(err)
	if _, found, err := r.Store.Recall(r.ctx, once, moved...); err != nil || !found {
		r.Fatalf("a member's key was not kept: %v, %v", found, err)
	}
	r.sameLength(moved, []storage.Claim{c})
	r.holds(key, want)
	if moved[0].Seq != c.Seq+1 {
		r.Fatalf("members moved the fence from %d to %d", c.Seq, moved[0].Seq)
	}
	if ops := r.last(resource).Ops; len(ops) != 2 || ops[0].ID != "1" || ops[1].ID != "2" {
		r.Fatalf("the entry has the operations %+v", ops)
	}
}

func memberShares[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	for range 3 {
		r.member(txn, r.add(key, 1))
	}
	r.holds(key, 0)
	r.commits(txn, c, 3)
}

// memberEnds returns a part in which a member ends by end, after it has written, between two
// that succeed.
func memberEnds[Tx any](end func() error, gone bool) func(r *run[Tx]) {
	return func(r *run[Tx]) {
		c := r.claim(grant(7))
		txn := r.begin(c)
		r.member(txn, r.add(key, 1))
		var err error
		returned, ended := false, make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			err = txn.RunMember(r.ctx, context.Background(), storage.Func[Tx](func(ctx context.Context, tx Tx) error {
				if err := r.Set(ctx, tx, key, 100); err != nil {
					return err
				}
				return end()
			}))
			returned = true
		}()
		<-ended
		if returned == gone {
			r.Fatalf("RunMember returned: %v, want %v", returned, !gone)
		}
		if !gone && !errors.Is(err, errMember) {
			r.Fatalf("RunMember returned %v, want the operation's error", err)
		}
		r.member(txn, r.add(key, 1))
		r.commits(txn, c, 2)
	}
}

func memberCtxEnds[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	r.member(txn, r.add(key, 1))
	ctx, cancel := context.WithCancel(r.ctx)
	err := txn.RunMember(ctx, context.Background(), storage.Func[Tx](func(ctx context.Context, tx Tx) error {
		defer cancel()
		return r.Set(ctx, tx, key, 100)
	}))
	if !errors.Is(err, context.Canceled) {
		r.Fatalf("RunMember under a context that has ended returned %v", err)
	}
	r.member(txn, r.add(key, 1))
	r.commits(txn, c, 2)
}

func memberCtxEndsLater[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	ctx, cancel := context.WithCancel(r.ctx)
	r.noError(txn.RunMember(ctx, context.Background(), r.add(key, 1)))
	cancel()
	r.member(txn, r.add(key, 1))
	r.commits(txn, c, 2)
}

func memberWholeEnds[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	r.member(txn, r.add(key, 1))
	whole, cancel := r.whole()
	err := txn.RunMember(r.ctx, whole, storage.Func[Tx](func(ctx context.Context, tx Tx) error {
		defer cancel()
		return r.Set(ctx, tx, key, 100)
	}))
	if err == nil || txn.Over() == nil {
		r.Fatalf("RunMember returned %v after the end of the whole, and Over %v; want errors", err, txn.Over())
	}
	r.commitFails(txn)
	r.untouched(c)
}

func memberTxEnds[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	txn := r.begin(c)
	var kept Tx
	r.member(txn, storage.Func[Tx](func(ctx context.Context, tx Tx) error {
		kept = tx
		return r.Set(ctx, tx, key, 1)
	}))
	r.member(txn, storage.Func[Tx](func(ctx context.Context, tx Tx) error {
		if err := r.Set(ctx, kept, key, 100); err == nil {
			return errors.New("a member used the transaction of the one before it")
		}
		return r.Set(ctx, tx, key, 2)
	}))
	r.commits(txn, c, 2)
}

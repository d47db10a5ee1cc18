package guardtest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// laxTxn runs its operations again, under the claim of whom the fence is at, when
// it is rejected for one reason.
type laxTxn struct {
	txn
	store  store
	ignore storage.Reason
	ops    []op
}

func lax(ignore storage.Reason) func(context.Context, store, []storage.Claim) (txn, error) {
	return func(ctx context.Context, s store, claims []storage.Claim) (txn, error) {
		inner, err := s.Begin(ctx, claims...)
		if current, ok := ignored(ctx, s, err, ignore); ok {
			return s.Begin(ctx, current)
		}
		return &laxTxn{txn: inner, store: s, ignore: ignore}, err
	}
}

// ignored returns the claim to go on with after err, if err is to be ignored.
func ignored(ctx context.Context, s store, err error, ignore storage.Reason) (storage.Claim, bool) {
	var rejection *guard.RejectedError
	if !errors.As(err, &rejection) || rejection.Reason != ignore {
		return storage.Claim{}, false
	}
	current, err := claimOne(ctx, s, rejection.Current)
	return current, err == nil
}

func (t *laxTxn) Run(ctx context.Context, o op) error {
	t.ops = append(t.ops, o)
	return t.txn.Run(ctx, o)
}

func (t *laxTxn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	moved, err := t.txn.Commit(ctx, moves)
	current, ok := ignored(ctx, t.store, err, t.ignore)
	if !ok {
		return moved, err
	}
	again, err := t.store.Begin(ctx, current)
	if err != nil {
		return nil, err
	}
	for _, o := range t.ops {
		if err := again.Run(ctx, o); err != nil {
			return nil, err
		}
	}
	return again.Commit(ctx, moves)
}

// sealEachAlone seals claim after claim, each in a transaction of its own.
func sealEachAlone(ctx context.Context, s store, claims []storage.Claim) (txn, error) {
	if len(claims) < 2 {
		return s.Begin(ctx, claims...)
	}
	inner, err := s.Begin(ctx, claims[0])
	return &eachAlone{inner, s, claims[1:]}, err
}

type eachAlone struct {
	txn
	store store
	rest  []storage.Claim
}

func (t *eachAlone) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	if len(moves) > 1 {
		moves = moves[:1]
	}
	moved, err := t.txn.Commit(ctx, moves)
	for _, c := range t.rest {
		if err != nil {
			return nil, err
		}
		var other txn
		if other, err = t.store.Begin(ctx, c); err == nil {
			var one []storage.Claim
			one, err = other.Commit(ctx, moves)
			moved = append(moved, one...)
		}
	}
	return moved, err
}

// firstClaimOnly ignores all claims but the first.
func firstClaimOnly(ctx context.Context, s store, claims []storage.Claim) (txn, error) {
	return s.Begin(ctx, claims[:min(len(claims), 1)]...)
}

// change is what a changedTxn does wrong.
type change struct {
	commitAtRollback, hideErrors, forgetErrors, hidePanics, hideGoexit, neverEnds, once, dropOps, dropAll, ignoreCtx, doubtful, dropKeep, keepAtOnce, firstMove, anyMoves, blameFirst bool
}

type changedTxn struct {
	txn
	change
	store  store
	claims []storage.Claim
	runs   int
	last   error // of the latest Run
	done   bool
}

func with(c change) func(context.Context, store, []storage.Claim) (txn, error) {
	return func(ctx context.Context, s store, claims []storage.Claim) (txn, error) {
		inner, err := s.Begin(ctx, claims...)
		if err != nil {
			return nil, err
		}
		return &changedTxn{txn: inner, change: c, store: s, claims: claims}, nil
	}
}

func (t *changedTxn) Run(ctx context.Context, o op) (err error) {
	t.runs++
	switch {
	case t.neverEnds && t.done:
		return nil
	case t.once && t.runs > 1:
		return guard.ErrTxEnded
	case t.hideErrors, t.forgetErrors:
		runErr := t.txn.Run(ctx, storage.Func[tx](func(ctx context.Context, tx tx) error {
			err = o.Run(ctx, tx)
			return nil
		}))
		t.last = errors.Join(err, runErr)
		return t.last
	case t.hidePanics, t.hideGoexit:
		return t.runHidden(ctx, o)
	}
	if t.ignoreCtx {
		ctx = context.Background()
	}
	err = t.txn.Run(ctx, o)
	if failed := new(storage.OpError); t.blameFirst && errors.As(err, &failed) {
		failed.Number = 0
	}
	return err
}

// runHidden lets the store believe that an operation succeeded which panicked or
// ended its goroutine.
func (t *changedTxn) runHidden(ctx context.Context, o op) error {
	var caught any
	returned := true
	err := t.txn.Run(ctx, storage.Func[tx](func(ctx context.Context, tx tx) error {
		var err error
		returned = false
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { caught = recover() }()
			err = o.Run(ctx, tx)
			returned = true
		}()
		<-ended
		return err
	}))
	if caught != nil {
		panic(caught)
	}
	if !returned {
		runtime.Goexit()
	}
	return err
}

func (t *changedTxn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	if t.neverEnds && t.done {
		return t.claims, nil
	}
	t.done = true
	if t.dropAll || t.forgetErrors && t.last != nil {
		t.txn.Rollback(ctx)
		return t.claims, t.last
	}
	moves = t.changed(moves)
	if t.keepAtOnce {
		if other, err := t.store.Begin(context.Background(), t.claims...); err == nil {
			_, _ = other.Commit(context.Background(), moves)
		}
	}
	if t.ignoreCtx {
		ctx = context.Background()
	}
	moved, err := t.txn.Commit(ctx, moves)
	if t.doubtful && err != nil {
		err = &storage.InDoubtError{InDoubt: storage.InDoubt{Claims: t.claims}, Err: fmt.Errorf("unsent: %w", err)}
	}
	return moved, err
}

// changed returns what is written instead of moves.
func (t *changedTxn) changed(moves []storage.Move) []storage.Move {
	moves = slices.Clone(moves)
	for i := range moves {
		if t.firstMove {
			moves[i] = moves[0]
		}
		if t.dropOps {
			moves[i].Ops = nil
		}
		if t.dropKeep {
			moves[i].Kept = nil
		}
	}
	if t.anyMoves {
		moves = nil
	}
	return moves
}

func (t *changedTxn) Rollback(ctx context.Context) {
	if t.commitAtRollback && !t.done {
		t.done = true
		_, _ = t.txn.Commit(context.Background(), nil)
	}
	t.done = true
	t.txn.Rollback(ctx)
}

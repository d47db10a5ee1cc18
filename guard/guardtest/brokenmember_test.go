package guardtest_test

import (
	"context"
	"runtime"
	"sync"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// memberChange is what a memberTxn does wrong.
type memberChange struct{ once, keepErrors, keepEnds, ignoreCtx, honourCtx, ignoreWhole bool }

type memberTxn struct {
	txn
	memberChange
	ran  int
	seen []context.Context
}

func memberwise(c memberChange) func(context.Context, store, []storage.Claim) (txn, error) {
	return func(ctx context.Context, s store, claims []storage.Claim) (txn, error) {
		inner, err := s.Begin(ctx, claims...)
		if err != nil {
			return nil, err
		}
		return &memberTxn{txn: inner, memberChange: c}, nil
	}
}

func (t *memberTxn) RunMember(ctx, whole context.Context, o op) (err error) {
	t.ran++
	t.seen = append(t.seen, ctx)
	if t.ignoreWhole {
		whole = context.Background()
	}
	switch {
	case t.once && t.ran > 1:
		return guard.ErrTxEnded
	case t.ignoreCtx:
		return t.txn.RunMember(context.WithoutCancel(ctx), whole, o)
	case t.keepErrors:
		return t.keepingErrors(ctx, whole, o)
	case t.keepEnds:
		return t.keepingEnds(ctx, whole, o)
	}
	return t.txn.RunMember(ctx, whole, o)
}

// keepingErrors lets the store believe that the operation succeeded.
func (t *memberTxn) keepingErrors(ctx, whole context.Context, o op) (err error) {
	if inner := t.txn.RunMember(ctx, whole, storage.Func[tx](func(ctx context.Context, tx tx) error {
		err = o.Run(ctx, tx)
		return nil
	})); inner != nil {
		return inner
	}
	return err
}

// keepingEnds lets the store believe that an operation succeeded which panicked or ended its
// goroutine.
func (t *memberTxn) keepingEnds(ctx, whole context.Context, o op) (err error) {
	returned := false
	inner := t.txn.RunMember(ctx, whole, storage.Func[tx](func(ctx context.Context, tx tx) error {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			err = o.Run(ctx, tx)
			returned = true
		}()
		<-ended
		return err
	}))
	if !returned {
		runtime.Goexit()
	}
	return inner
}

func (t *memberTxn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	for _, seen := range t.seen {
		if t.honourCtx && seen.Err() != nil {
			t.Rollback(ctx)
			return nil, seen.Err()
		}
	}
	return t.txn.Commit(ctx, moves)
}

// sharedTxn runs all members in one operation of the store's.
type sharedTxn struct {
	txn
	ops  chan func(tx tx)
	once sync.Once
	ran  chan struct{} // closed when the operation has ended
}

func sharedTx(ctx context.Context, s store, claims []storage.Claim) (txn, error) {
	inner, err := s.Begin(ctx, claims...)
	if err != nil {
		return nil, err
	}
	t := &sharedTxn{txn: inner, ops: make(chan func(tx tx)), ran: make(chan struct{})}
	go func() {
		defer close(t.ran)
		_ = inner.Run(ctx, storage.Func[tx](func(_ context.Context, tx tx) error {
			defer func() { _ = recover() }()
			for run := range t.ops {
				run(tx)
			}
			return nil
		}))
	}()
	return t, nil
}

func (t *sharedTxn) Run(ctx context.Context, o op) error {
	return t.RunMember(ctx, context.Background(), o)
}

func (t *sharedTxn) RunMember(ctx, _ context.Context, o op) error {
	done := make(chan error, 1)
	select {
	case <-t.ran:
		return guard.ErrTxEnded
	default:
	}
	select {
	case t.ops <- func(tx tx) { done <- o.Run(ctx, tx) }:
	case <-t.ran:
	}
	select {
	case err := <-done:
		return err
	case <-t.ran:
		return guard.ErrTxEnded
	}
}

func (t *sharedTxn) Over() error { return nil }

func (t *sharedTxn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	t.end()
	return t.txn.Commit(ctx, moves)
}

func (t *sharedTxn) Rollback(ctx context.Context) {
	t.end()
	t.txn.Rollback(ctx)
}

// end ends the operation that runs the members.
func (t *sharedTxn) end() {
	t.once.Do(func() { close(t.ops) })
	<-t.ran
}

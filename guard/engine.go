package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/storage"
)

// engine runs operations in a store, under the grants of grantStates.
type engine[Tx any] struct {
	store          storage.Store[Tx]
	storeTimeout   time.Duration
	commitTimeout  time.Duration
	resolveTimeout time.Duration
	report         *reporter
	aborted        context.Context // ends when Close gives up waiting
}

func newEngine[Tx any](store storage.Store[Tx], cfg Config, report *reporter, aborted context.Context) engine[Tx] {
	return engine[Tx]{
		store: store, storeTimeout: cfg.StoreTimeout, commitTimeout: cfg.CommitTimeout, resolveTimeout: cfg.ResolveTimeout,
		report: report, aborted: aborted,
	}
}

// contextFunc returns the context for one run of an operation, and the function that
// ends it. The context may end before the caller's does; the fence then decides whether
// the operation commits.
type contextFunc func() (context.Context, context.CancelCauseFunc)

// attempt runs op once, in a transaction of its own (G4).
func (e *engine[Tx]) attempt(ctx context.Context, newContext contextFunc, states grantStates, op storage.Op[Tx], o options, operation *Operation) error {
	if err := e.readyAll(ctx, states); err != nil {
		return err
	}
	repeated, err := e.recall(ctx, states, o)
	if err != nil {
		return err
	}
	txn, err := e.begin(ctx, states)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx) // also if op panics or ends its goroutine; after a COMMIT it does nothing
	if repeated {
		// Commit all the same: what was merely read may be lost in a failover, or the
		// grant may be stale by now.
		if err := e.commit(ctx, states, txn, o, storage.Move{}); err != nil {
			return err
		}
		operation.Outcome = OutcomeRepeated
		return nil
	}
	if err := e.run(newContext, states, txn, op); err != nil {
		return err
	}
	move, err := moveOf(o)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return endError(ctx)
	}
	return e.commit(ctx, states, txn, o, move)
}

// begin begins a transaction under the claims of states.
func (e *engine[Tx]) begin(ctx context.Context, states grantStates) (storage.Txn[Tx], error) {
	ctx, cancel := e.withStoreTimeout(ctx)
	defer cancel()
	txn, err := e.store.Begin(ctx, states.claims()...)
	if err != nil {
		return nil, e.stepFailed(ctx, states, "begin", err)
	}
	return txn, nil
}

// withStoreTimeout bounds a step that precedes op by Config.StoreTimeout and by Close.
func (e *engine[Tx]) withStoreTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, abort := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.aborted, func() { abort(context.Cause(e.aborted)) })
	ctx, cancel := context.WithTimeoutCause(ctx, e.storeTimeout, fmt.Errorf("%w: no answer in time (Config.StoreTimeout is %v)", ErrStoreUnavailable, e.storeTimeout))
	return ctx, func() {
		stop()
		cancel()
		abort(nil)
	}
}

// recall reports whether an operation with Once has taken effect before, and if so
// decodes the result that was kept.
func (e *engine[Tx]) recall(ctx context.Context, states grantStates, o options) (repeated bool, err error) {
	if o.once == nil {
		return false, nil
	}
	ctx, cancel := e.withStoreTimeout(ctx)
	defer cancel()
	kept, found, err := e.store.Recall(ctx, *o.once, states.claims()...)
	switch {
	case errors.Is(err, ErrKeyReused):
		return false, err
	case err != nil:
		return false, e.stepFailed(ctx, states, "once", err)
	case found:
		if err := o.result.decode(kept); err != nil {
			return true, fmt.Errorf("guard: %s: the result that was kept under key %q doesn't fit; call with the type that it was kept with, or take a new key for a new operation: %w", names(states.grants()), o.once.Key, err)
		}
		return true, nil
	}
	return false, nil
}

// moveOf returns what an operation writes for each of its resources: its record, and its
// result if it has Once.
func moveOf(o options) (storage.Move, error) {
	move := storage.Move{Ops: []storage.OpRecord{o.record}}
	if o.once == nil {
		return move, nil
	}
	data, err := o.result.encode()
	move.Kept = []storage.Kept{{Key: *o.once, Result: data}}
	return move, err
}

// run runs op in txn, with a context that ends when op has returned.
func (e *engine[Tx]) run(newContext contextFunc, states grantStates, txn storage.Txn[Tx], op storage.Op[Tx]) error {
	ctx, end := newContext()
	defer end(nil)
	if err := txn.Run(ctx, op); err != nil {
		return e.noteRejection(states, withCause(ctx, err))
	}
	return nil
}

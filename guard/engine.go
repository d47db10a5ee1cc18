package guard

import (
	"context"
	"errors"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// engine runs operations in a store, under the grants of grantStates.
type engine[Tx any] struct {
	store          storage.Store[Tx]
	groups         storage.GroupStore[Tx] // the same store if it can form groups, else nil
	forming        *forming[Tx]           // nil if groups is nil
	steps          *timeouts              // of the steps that precede a function
	commitTimeout  time.Duration
	resolveTimeout time.Duration
	keeper         *keeper
	report         *reporter
	profiles       *profiles // nil if functions have no labels
	key            any       // under which a function's context is found: see nested
}

func newEngine[Tx any](store storage.Store[Tx], k *keeper) engine[Tx] {
	e := engine[Tx]{
		store: store, keeper: k, report: k.report, resolveTimeout: k.cfg.ResolveTimeout,
		profiles: newProfiles(k.cfg), steps: newTimeouts(k.cfg.StoreTimeout), commitTimeout: k.cfg.CommitTimeout, // mutant: database-that-is-silent-keeps-the-lock
	}
	if groups, ok := store.(storage.GroupStore[Tx]); ok && groups.CanGroup() {
		e.groups, e.forming = groups, newForming[Tx]()
	}
	return e
}

// function is what a transaction runs, and what its context says and ends with.
type function[Tx any] struct {
	op     storage.Op[Tx]
	grants []fence.Grant
	bounds bounds
}

// attempt runs f once, in a transaction of its own (G4).
func (e *engine[Tx]) attempt(ctx context.Context, states grantStates, f function[Tx], o options, operation *Operation) error {
	if err := e.readyAll(ctx, states); err != nil {
		return err
	}
	run := newRunContext(ctx)
	run.guard, run.grants = e.key, f.grants
	e.keeper.contexts.add(run)
	defer run.finish(nil)
	operation.inBatch(1, 0)
	if repeated, err := e.recall(run, states, o); err != nil {
		return err
	} else if repeated {
		operation.Outcome = OutcomeRepeated
		return nil
	}
	txn, err := e.begin(run, states, o.readOnly)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx) // also if op panics or ends its goroutine; after a COMMIT it does nothing
	if err := e.run(run, states, txn, f); err != nil {
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
func (e *engine[Tx]) begin(run *runContext, states grantStates, readOnly bool) (storage.Txn[Tx], error) {
	defer e.steps.stop(e.steps.start(run))
	begin := e.store.Begin
	if readOnly {
		begin = e.store.BeginReadOnly
	}
	txn, err := begin(run, states.claims()...)
	if err != nil {
		return nil, e.stepFailed(run, states, "begin", err)
	}
	return txn, nil
}

// recall reports whether an operation with Once has taken effect before, and if so
// decodes the result that was kept. The claims' positions were acknowledged to their grants, and the
// store compares them: so the answer is durable, and not that of a superseded grant.
func (e *engine[Tx]) recall(run *runContext, states grantStates, o options) (repeated bool, err error) {
	if o.once == nil {
		return false, nil
	}
	defer e.steps.stop(e.steps.start(run))
	result, found, err := e.store.Recall(run, *o.once, states.claims()...)
	switch {
	case errors.Is(err, ErrKeyReused):
		return false, err
	case err != nil:
		return false, e.stepFailed(run, states, "once", err)
	case !found:
		return false, nil
	}
	return true, o.decode(states.grants(), result)
}

// moveOf returns what an operation writes for each of its resources: its record, and its
// result if it has Once.
func moveOf(o options) (storage.Move, error) {
	move := storage.Move{Ops: []storage.OpRecord{o.record}}
	if o.once == nil {
		return move, nil
	}
	data, err := o.keep()
	move.Kept = []storage.Kept{{Key: *o.once, Result: data}}
	return move, err
}

// run runs f in txn, with a context that ends when f has returned.
func (e *engine[Tx]) run(run *runContext, states grantStates, txn storage.Txn[Tx], f function[Tx]) error {
	e.keeper.bind(run, f.bounds)
	defer run.unbind(nil)
	if err := txn.Run(run, f.op); err != nil {
		return e.noteRejection(run, states, withCause(run, err))
	}
	return nil
}

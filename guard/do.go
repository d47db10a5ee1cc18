package guard

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

const maxResources = 100

// Resources names 1 to 100 resources, each once, in any order.
//
// A [*Guard] acquires them in the order of their names, so calls never wait for each other in a circle. Rows that
// functions lock have no such order: lock them in the same order everywhere, or use [Retryable].
type Resources interface{ ~string | ~[]string }

// Runner runs transactions. A [*Guard] acquires the grants that a call needs; the Runners of a [Hold],
// [Guard.UnderGrant] and [Guard.UnderLease] have theirs. All are safe for concurrent use. Only this package
// implements it: for a fake, use a Guard on a fake store, see package guardtest.
type Runner[Tx any] interface {
	run(ctx context.Context, c *call[Tx]) error
	hold(ctx context.Context, fn func(ctx context.Context, h Runner[Tx]) error, o *options) error
}

// Do claims a grant of each resource, before the transaction or in it, runs fn in the transaction, and commits.
// fn reads, decides and writes through tx: no earlier holder can commit any more, and if tx commits, no later one has
// claimed. fn runs on the calling goroutine, at most once unless [Retryable] is given. A [*Guard] acquires the
// grants; any other [Runner] must have them, and the transaction commits under all of its grants or not at all.
//
// If Do returns nil, fn's work took effect. After [ErrUnknownOutcome] that could not be learned. Any other error
// means that nothing was or will be written, except [ErrTxEnded]: what fn itself commits stays. If fn returns an error, which Do returns, panics or ends its goroutine, everything is rolled back.
//
// On storage/postgres the grant is checked again with fn's first statement, which fails if the grant was
// superseded; Do then returns the rejection whatever fn returns.
//
// fn's context ends with ctx, and when a lease is lost, with the [*fence.LeaseLostError] as its cause; the fence
// decides whether fn may still commit. Once COMMIT was sent, Do waits for the outcome even if ctx ends, within
// Config.StoreTimeout and Config.ResolveTimeout. A call of the same Guard with fn's context is [ErrInvalid].
func Do[Tx any, R Resources](ctx context.Context, on Runner[Tx], resources R, fn func(ctx context.Context, tx Tx) error, opts ...Option) error {
	return do(ctx, on, resources, storage.Func[Tx](fn), noResult, opts)
}

// Value is [Do] for a function that returns a value. With every error it returns the zero value.
func Value[Tx, V any, R Resources](ctx context.Context, on Runner[Tx], resources R, fn func(ctx context.Context, tx Tx) (V, error), opts ...ValueOption) (V, error) {
	var value, zero V
	var run storage.Func[Tx]
	if fn != nil {
		run = func(ctx context.Context, tx Tx) (err error) {
			value, err = fn(ctx, tx)
			return err
		}
	}
	if err := do(ctx, on, resources, run, valueResult(&value), opts); err != nil {
		return zero, err
	}
	return value, nil
}

// Exec is [Do] for an operation of the store's own kind. It takes [Once] if op is a [storage.ResultOp].
//
// On a [*Guard], calls that wait for the same single resource share transactions if their op is a [storage.BatchOp]
// whose method Shares returns true. If such a transaction takes no effect, the operation that failed runs again
// alone, and the others share another one. If op travels with COMMIT, as a postgres.Batch does, the end of ctx has
// no effect once it was sent.
func Exec[Tx any, R Resources](ctx context.Context, on Runner[Tx], resources R, op storage.Op[Tx], opts ...ValueOption) error {
	return do(ctx, on, resources, op, opResult(op), opts)
}

// Hold runs fn while one claimed grant of each resource is held. fn runs any number of transactions on h, and may
// send [Grants] of its context to other services in between. What it read in an earlier transaction still holds in
// a later one that commits: if another holder has claimed, that is rejected with [ErrStaleToken], and if another
// transaction has committed under these grants, with [ErrOvertaken]. After that, and after a COMMIT that was not
// applied, every call on h is rejected: begin the Hold again, or use [Retryable].
//
// The grants are for receivers that keep their fences in another database. One that writes to this database under
// them ([Guard.UnderGrant]) moves the fence, and the next call on h is rejected with ErrOvertaken. Reads on other
// connections than h's are covered only as long as the database loses nothing that it has committed.
//
// Calls on h run one after another, each under all grants of the Hold; the resources that they name are only
// checked. Each takes effect by itself: an error of fn undoes nothing that has committed. fn's context ends as for
// [Do]; with it a call on the Guard itself, or a Hold on h, is [ErrInvalid]. When fn has returned, Hold ends the
// contexts of transactions that other goroutines run on h and waits for them; later calls on h fail with
// [fence.ErrReleased].
func Hold[Tx any, R Resources](ctx context.Context, on Runner[Tx], resources R, fn func(ctx context.Context, h Runner[Tx]) error, opts ...HoldOption) error {
	o := &options{}
	if err := prepare(o, on, resources, fn, opts); err != nil {
		return err
	}
	return on.hold(ctx, fn, o)
}

func do[Tx any, R Resources, O ValueOption](ctx context.Context, on Runner[Tx], resources R, op storage.Op[Tx], result result, opts []O) error {
	c := &call[Tx]{op: op}
	if err := prepare(&c.options, on, resources, op, opts); err != nil {
		return err
	}
	if c.once != nil {
		if result.encode == nil {
			return fmt.Errorf("%w: Once needs an Op with results, a storage.ResultOp, or a function of Value", ErrInvalid)
		}
		c.result = result
		c.op = storage.Func[Tx](op.Run) // results are kept before Commit runs a batch: see storage.BatchOp
	}
	return on.run(ctx, c)
}

func prepare[Tx any, R Resources, O ValueOption](o *options, on Runner[Tx], resources R, function any, opts []O) (err error) {
	if isNil(on) {
		return errNoGuard
	}
	if isNil(function) {
		return fmt.Errorf("%w: nil function or Op", ErrInvalid)
	}
	if o.Resources, err = namesOf(o.oneResource[:0], resources); err != nil {
		return err
	}
	for _, opt := range opts {
		if isNil(opt) {
			return fmt.Errorf("%w: nil Option", ErrInvalid)
		}
		if err := opt.set(o); err != nil {
			return err
		}
	}
	if o.once != nil && o.ReadOnly {
		return fmt.Errorf("%w: Once and ReadOnly: nothing is kept of an operation that only reads", ErrInvalid)
	}
	if o.receipt != nil && o.ReadOnly {
		return fmt.Errorf("%w: Receipt and ReadOnly: the history has nothing of an operation that only reads", ErrInvalid)
	}
	if o.once != nil && o.Record.ID == "" {
		o.Record.ID = o.once.Key
	}
	return nil
}

func namesOf[R Resources](names []string, resources R) ([]string, error) {
	if name, ok := any(resources).(string); ok {
		names = append(names, name)
	} else if v := reflect.ValueOf(resources); v.Kind() == reflect.String {
		names = append(names, v.String())
	} else {
		names = slices.Sorted(slices.Values(v.Convert(reflect.TypeFor[[]string]()).Interface().([]string)))
	}
	if n := len(names); n < 1 || n > maxResources {
		return nil, fmt.Errorf("%w: %d resources, want 1 to %d", ErrInvalid, n, maxResources)
	}
	for i, name := range names {
		if err := fence.ValidateResource(name); err != nil {
			return nil, fmt.Errorf("%w: resource name %s", ErrInvalid, err.(*fence.InvalidGrantError).Reason)
		}
		if i > 0 && names[i-1] == name {
			return nil, fmt.Errorf("%w: %q is named twice", ErrInvalid, name)
		}
	}
	return names, nil
}

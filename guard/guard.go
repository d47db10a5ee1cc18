package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Guard acquires grants from a lock service and runs transactions under them in a
// store, so that no holder of an earlier grant can interfere. Use New. All methods,
// and the functions that take a Guard, may be called from several goroutines.
//
// Calls for one resource run one after another, in order of arrival, also across
// processes that share the lock service. Calls for different resources don't wait
// for each other. Each call runs on its caller's goroutine. A resource stays with the
// Guard from call to call ([Config].KeepFor) until another process waits for it
// ([Config].MaxHold). If the lock service doesn't answer a call that asks for a resource,
// those that wait behind it in this process fail with its error.
//
// A function that calls its own Guard has to use the context that it was given: with it
// the call fails with ErrInvalid, with another one it waits for itself until that context
// ends. A leader that calls Do for the resource that it leads waits for itself as well:
// see [Guard.UnderLease].
type Guard[Tx any] struct {
	engine[Tx]
}

// New returns a Guard that locks with locker and writes through store. It closes
// neither. Close the Guard before them. Without a locker, which is nil then, it runs
// only what comes with a grant or a lease of the caller's: [Guard.UnderGrant],
// [Guard.UnderLease]. It fails with ErrInvalid if store is nil, if either is a nil
// pointer, or if cfg is out of bounds.
func New[Tx any](locker fence.Locker, store storage.Store[Tx], cfg *Config) (*Guard[Tx], error) {
	if isNil(store) || locker != nil && isNil(locker) {
		return nil, fmt.Errorf("%w: New needs a store, and a locker that is no nil pointer", ErrInvalid)
	}
	filled := cfg.withDefaults()
	if err := filled.validate(); err != nil {
		return nil, err
	}
	k := newKeeper(locker, filled)
	g := &Guard[Tx]{engine: newEngine(store, k)}
	g.key = (*scopeKey[Tx])(g)
	return g, nil
}

// Close ends the Guard. Calls that have not begun to run, and later ones, return
// ErrClosed. Close releases what is owned, waits for the calls that run, and
// returns the errors of releases that failed or could not be confirmed within 5 s;
// such a resource is free when its lease has run out. When ctx ends first the
// contexts of running functions end with the cause ErrClosed, and so does the wait
// for the database of calls whose functions have not begun.
//
// Close waits until ctx ends, and for up to 5 s in any case: a ctx that has ended
// already, as in a graceful stop, ends running functions at once and leaves the
// time to release. If that was too short, Close returns ctx's error while the
// functions finish in the background. It may be called again, to wait again, and
// returns the same errors.
//
// With the context of a function that runs under the Guard Close would wait for itself: it
// returns ErrInvalid and closes nothing.
func (g *Guard[Tx]) Close(ctx context.Context) error {
	if g == nil {
		return errNoGuard
	}
	if ctx.Value(g.key) != nil {
		return fmt.Errorf("%w: close: the context is that of a function that runs under this Guard: let it return first", ErrInvalid)
	}
	k := g.keeper
	defer k.report.losses.log(k.report.logger)
	defer context.AfterFunc(ctx, func() { k.contexts.endAll(ErrClosed) })()
	patient, stop := withReleaseTime(ctx)
	defer stop()
	k.closeLines(patient)
	select {
	case <-k.done:
		return k.releaseErrors()
	case <-patient.Done():
		return errors.Join(fmt.Errorf("guard: close: %w", ctx.Err()), k.releaseErrors())
	}
}

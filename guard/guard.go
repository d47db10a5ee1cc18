package guard

import (
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Guard acquires grants from a lock service and runs transactions under them in a
// store, so that no holder of an earlier grant can interfere. Use New. All methods,
// and the functions that take a Guard, may be called from several goroutines.
//
// Calls for one resource run one after another, in order of arrival, also across
// processes that share the lock service. Calls for different resources don't wait
// for each other. Each call runs on its caller's goroutine.
type Guard[Tx any] struct {
	engine[Tx]
	keeper *keeper
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
	return &Guard[Tx]{engine: newEngine(store, filled, k.report, k.aborted), keeper: k}, nil
}

// observe tells the Observer how a call ends.
func (g *Guard[Tx]) observe(resources []string, o options, call func(f *Finish) error) error {
	start := time.Now()
	f := Finish{Resources: resources, Op: o.record, Outcome: OutcomePanicked}
	defer func() {
		f.Took = time.Since(start)
		g.report.finished(f)
	}()
	f.Err = call(&f)
	if f.Err != nil || f.Outcome != OutcomeRepeated {
		f.Outcome = outcomeOf(f.Err, f.Grants)
	}
	return f.Err
}

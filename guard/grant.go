package guard

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// DoGrant is Do under a grant that came from elsewhere, such as a request's
// header. It claims the grant first; the fence refuses it if a higher one has
// claimed the resource.
//
// Several transactions of one grant, in several places, don't wait for each other:
// of two that overlap, the later one to commit is refused with ErrOvertaken, and
// right to be run again. If the grant is a Hold's and store is over that Hold's
// own database, the transaction overtakes the Hold: its next h.Do is refused, and
// the Hold has to be begun anew. DoGrant uses the default timeouts of Config.
//
// With Once, a refusal says nothing of earlier calls with the key: one whose answer
// was lost may have taken effect before the grant became stale. The same key under
// a newer grant finds that one, or does it.
func DoGrant[Tx any](ctx context.Context, store storage.Store[Tx], grant fence.Grant, fn func(ctx context.Context, tx Tx) error, opts ...Option) error {
	if isNil(store) {
		return fmt.Errorf("%w: DoGrant needs a store", ErrInvalid)
	}
	if fn == nil {
		return errNoFunction
	}
	if err := grant.Validate(); err != nil {
		return err
	}
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	e := newEngine(store, (*Config)(nil).withDefaults(), newReporter(nil, nil), context.Background())
	s := &standing{grant: grant}
	enter := func() (context.Context, context.CancelCauseFunc) { return context.WithCancelCause(ctx) }
	return retry(ctx, o, againUnderGrant, func() error { return e.attempt(ctx, enter, standings{s}, storage.Func[Tx](fn), o, &Finish{}) })
}

// ValueGrant is DoGrant for a function that returns a value, as Value is Do.
func ValueGrant[Tx, V any](ctx context.Context, store storage.Store[Tx], grant fence.Grant, fn func(ctx context.Context, tx Tx) (V, error), opts ...Option) (V, error) {
	return valueOf(fn, opts, func(fn func(ctx context.Context, tx Tx) error, opts ...Option) error {
		return DoGrant(ctx, store, grant, fn, opts...)
	})
}

// grantsKey is the key under which a function's context has its grants.
type grantsKey struct{}

// Grants returns the grants that a function runs under, given the context that it
// was given: one, or those of a DoAll in order of their names. It is for what the
// function tells others, such as an answer with the token in it. It is nil for any
// other context.
func Grants(ctx context.Context) []fence.Grant {
	ss, _ := ctx.Value(grantsKey{}).(standings)
	if ss == nil {
		return nil
	}
	return ss.grants()
}

package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// grantsKey is the key under which a function's context has its grants.
type grantsKey struct{}

// Grants returns the grants that a function of [Do], [Value], [Exec] or [Hold] runs
// under, in order of their resources' names, given the context that the function was
// given. It is for what the function tells others, such as a request that carries the
// grant. It is nil for any other context.
func Grants(ctx context.Context) []fence.Grant {
	grants, _ := ctx.Value(grantsKey{}).([]fence.Grant)
	return slices.Clone(grants)
}

// inside is the key under which a context says that it is that of a function
// which runs under a Guard. Its value is a scope.
type scopeKey struct{ guard any }

// scope is what a function runs under.
type scope struct {
	hold      any // the Runner of the Hold whose function it is; nil for a function in a transaction
	resources []string
}

// nested rejects a call on runner, which is guard's, by a function that guard runs.
func nested(ctx context.Context, guard, runner any, resources []string) error {
	in, ok := ctx.Value(scopeKey{guard}).(scope)
	if !ok || in.hold != nil && in.hold == runner {
		return nil
	}
	held := strings.Join(in.resources, ", ")
	for _, resource := range resources {
		if slices.Contains(in.resources, resource) {
			continue
		}
		if in.hold != nil {
			return fmt.Errorf("%w: nested call: the function is that of a Hold of %s: name %s beside it in one Hold, and use the Hold's Runner", ErrInvalid, held, resource)
		}
		return fmt.Errorf("%w: nested call: the function runs under %s: name %s beside it in one call", ErrInvalid, held, resource)
	}
	if in.hold != nil {
		return fmt.Errorf("%w: nested call: the function is that of a Hold of %s: use the Hold's Runner", ErrInvalid, held)
	}
	return fmt.Errorf("%w: nested call: the function runs under %s: use the transaction at hand", ErrInvalid, held)
}

// uncovered returns the first of resources for which there is none of grants; "" if there
// is one for each.
func uncovered(resources []string, grants []fence.Grant) (missing string) {
	for _, resource := range resources {
		if !slices.ContainsFunc(grants, func(g fence.Grant) bool { return g.Resource == resource }) {
			return resource
		}
	}
	return ""
}

// bounds are what ends the context of a function, besides the end of its caller's.
type bounds struct {
	leases  []fence.Lease
	limit   time.Duration // for how long it may run; 0 for no bound
	overran func()        // called, in a goroutine of its own, when that has passed; nil for nothing
}

// scoped returns the context for a function that runs under grants within b, and what
// ends it. hold is the Runner of the Hold whose function it is, or nil.
func (g *Guard[Tx]) scoped(ctx context.Context, hold any, grants []fence.Grant, b bounds) (context.Context, context.CancelCauseFunc) {
	in := scope{hold: hold}
	for _, grant := range grants {
		in.resources = append(in.resources, grant.Resource)
	}
	ctx = context.WithValue(context.WithValue(ctx, scopeKey{g}, in), grantsKey{}, grants)
	fnCtx, cancel := context.WithCancelCause(ctx)
	stops := []func() bool{context.AfterFunc(g.keeper.aborted, func() { cancel(ErrClosed) })}
	for _, l := range b.leases {
		lease := l.Context()
		stops = append(stops, context.AfterFunc(lease, func() { cancel(context.Cause(lease)) }))
	}
	if b.limit > 0 {
		overran := make(chan struct{})
		timer := time.AfterFunc(b.limit, func() {
			defer close(overran)
			cancel(fmt.Errorf("guard: function ran for too long (Config.MaxRun is %v): %w", b.limit, context.DeadlineExceeded))
			if b.overran != nil {
				b.overran()
			}
		})
		stops = append(stops, sync.OnceValue(func() bool {
			stopped := timer.Stop()
			if !stopped {
				<-overran // before another call may use the owned
			}
			return stopped
		}))
	}
	return fnCtx, func(cause error) {
		for _, stop := range stops {
			stop()
		}
		cancel(cause)
	}
}

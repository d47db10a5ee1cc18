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
// under, in order of their resources' names. ctx is the function's own context; for any
// other one Grants returns nil. A function uses it to send its grants along with requests.
func Grants(ctx context.Context) []fence.Grant {
	grants, _ := ctx.Value(grantsKey{}).([]fence.Grant)
	return slices.Clone(grants)
}

// scopeKey is the key of the scope in the context of a function that runs under guard.
type scopeKey struct{ guard any }

// scope says what a function runs under.
type scope struct {
	hold      any // the Runner of the Hold that runs the function; nil if a transaction runs it
	resources []string
}

// nested rejects a call on runner, a Runner of guard, that is made with the context of a
// function that guard runs. A call by a Hold's function on the Hold's Runner is allowed.
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
	return fmt.Errorf("%w: nested call: the function runs under %s: use the function's own transaction", ErrInvalid, held)
}

// uncovered returns the first of resources without a grant; "" if each has one.
func uncovered(resources []string, grants []fence.Grant) (missing string) {
	for _, resource := range resources {
		if !slices.ContainsFunc(grants, func(g fence.Grant) bool { return g.Resource == resource }) {
			return resource
		}
	}
	return ""
}

// bounds say what ends the context of a function, besides the end of its caller's context.
type bounds struct {
	leases  []fence.Lease
	limit   time.Duration // how long the function may run; 0 for no bound
	overran func()        // called in a goroutine of its own when limit has passed; may be nil
}

// scoped returns the context for a function that runs under grants within b, and the
// function that ends the context. hold is the Runner of the Hold that runs the function, or nil.
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
				<-overran // wait: the next call must not use what is being released
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

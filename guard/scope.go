package guard

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
)

// grantsKey is the key under which a function's context has its grants.
type grantsKey struct{}

// Grants returns the grants that a function of [Do], [Value], [Exec] or [Hold] runs
// under, in order of their resources' names. ctx is the function's own context; for any
// other one Grants returns nil. A function uses it to send its grants along with requests.
func Grants(ctx context.Context) []fence.Grant {
	if run, ok := ctx.Value(grantsKey{}).(*runContext); ok {
		return slices.Clone(run.grants)
	}
	return nil
}

// scopeKey is a Guard as a context key: that of the functions which run under it. It is a
// type of its own, so that no other package's key equals it.
type scopeKey[Tx any] Guard[Tx]

// nested rejects a call on runner, a Runner of g, that is made with the context of a
// function that g runs. A call by a Hold's function on the Hold's Runner is allowed.
func (g *Guard[Tx]) nested(ctx context.Context, runner any, resources []string) error {
	in, ok := ctx.Value(g.key).(*runContext)
	if !ok || in.hold != nil && in.hold == runner {
		return nil
	}
	held := names(in.grants)
	for _, resource := range resources {
		if uncovered([]string{resource}, in.grants) == "" {
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

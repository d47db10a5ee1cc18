package guard

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/storage"
)

// MaxResources is how many resources one DoAll may have.
const MaxResources = 100

// DoAll is Do for several resources at once, in any order, each named once: 1 to
// MaxResources. fn runs in one transaction under a grant of each, all claimed, and
// commits under all of them or not at all. If one is refused, none takes effect.
//
// The resources are acquired one after another, in the order of their names
// everywhere, so that calls that share some of them never wait for each other in a
// circle; while a call waits for one, it keeps those that it has. What fn locks in
// the database besides is its own affair: let it do so in one order too, or give
// the option Retryable.
func DoAll[Tx any](ctx context.Context, g *Guard[Tx], resources []string, fn func(ctx context.Context, tx Tx) error, opts ...Option) error {
	if fn == nil {
		return errNoFunction
	}
	if n := len(resources); n < 1 || n > MaxResources {
		return fmt.Errorf("%w: DoAll of %d resources, want 1 to %d", ErrInvalid, n, MaxResources)
	}
	sorted := slices.Sorted(slices.Values(resources))
	for i, resource := range sorted[1:] {
		if resource == sorted[i] {
			return fmt.Errorf("%w: DoAll names %q twice", ErrInvalid, resource)
		}
	}
	return g.exec(ctx, sorted, storage.Func[Tx](fn), opts)
}

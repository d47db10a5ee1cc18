package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fencekit/fencekit/fence"
)

// names returns the resources of grants, for a message.
func names(grants []fence.Grant) string {
	resources := make([]string, len(grants))
	for i, g := range grants {
		resources[i] = g.Resource
	}
	return strings.Join(resources, ", ")
}

// endError returns the error for an operation that ctx's end kept from beginning or
// from committing; nil if ctx goes on.
func endError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return withCause(ctx, fmt.Errorf("guard: %w", err))
	}
	return nil
}

// leftQueueError returns the error for a call that ctx's end kept from its turn at
// resource, which it awaited behind another.
func leftQueueError(ctx context.Context, resource, behind string) error {
	return withCause(ctx, fmt.Errorf("guard: %s: gave up waiting behind %s: %w", resource, behind, ctx.Err()))
}

// withCause adds the cause of ctx's end to an error that is about its end.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	aboutEnd := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if cause == nil || !aboutEnd || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

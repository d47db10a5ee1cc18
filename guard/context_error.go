package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fencekit/fencekit/fence"
)

// names returns the resources of grants, for a message.
func names(grants []fence.Grant) string { return strings.Join(resourcesOf(grants), ", ") }

// resourcesOf returns the names of the grants' resources.
func resourcesOf(grants []fence.Grant) []string {
	resources := make([]string, len(grants))
	for i, g := range grants {
		resources[i] = g.Resource
	}
	return resources
}

// endError returns the error for an operation that doesn't begin, or doesn't commit,
// because ctx has ended; nil if ctx has not ended.
func endError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return withCause(ctx, fmt.Errorf("guard: %w", err))
	}
	return nil
}

// leftQueueError returns the error for a call whose ctx ended while it waited for its
// turn at resource. behind says what it waited for.
func leftQueueError(ctx context.Context, resource, behind string) error {
	return withCause(ctx, fmt.Errorf("guard: %s: gave up waiting behind %s: %w", resource, behind, ctx.Err()))
}

// withCause adds the cause of ctx's end to err, if err says that a context has ended.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	aboutEnd := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if cause == nil || !aboutEnd || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

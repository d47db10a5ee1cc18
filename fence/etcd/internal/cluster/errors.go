package cluster

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// ErrLeaseGone: etcd says that the session's lease doesn't exist.
var ErrLeaseGone error = rpctypes.ErrLeaseNotFound

// rejections are errors that etcd returns before it changes anything. Every other error
// leaves the outcome of a write open. So does "no space", which etcd may return after the
// write that used the space up.
var rejections = []error{
	rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyRequests, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge, rpctypes.ErrPermissionDenied,
	rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrAuthFailed,
}

// Rejected reports whether err proves that a write had no effect.
func Rejected(err error) bool { return isAny(err, rejections) }

// TooBig reports whether err says that a Txn was beyond a limit of etcd's, --max-txn-ops or
// --max-request-bytes.
func TooBig(err error) bool {
	return isAny(err, []error{rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge})
}

// Ended is the error of an operation that ctx ended.
func Ended(ctx context.Context, what string) error {
	return fmt.Errorf("etcd: %s: %w", what, EndOf(ctx))
}

// EndOf is why ctx is done.
func EndOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

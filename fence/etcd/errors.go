package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencekit/fencekit/fence"
)

// ErrConfig: NewLocker refused an argument or a field of Config. See ConfigError.
var ErrConfig = errors.New("etcd: bad config")

// ConfigError says which argument or field of NewLocker is bad, and why. It
// is ErrConfig.
type ConfigError struct {
	Field  string
	Reason string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("etcd: bad config: %s %s", e.Field, e.Reason)
}

// Is reports whether target is ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// EpochError says that the epoch key holds something else than a decimal number
// from 1 to fence.MaxEpoch, without sign, spaces or leading zeros. Acquire
// returns it inside a *fence.UnavailableError.
type EpochError struct {
	Key   string
	Value string
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("etcd: epoch key %s holds %q; want a decimal number from 1 to %d", e.Key, e.Value, fence.MaxEpoch)
}

// WentBackError says that etcd shows an older state than it did before, as after
// a restore from a backup: it would issue tokens a second time. The locker
// grants nothing until the epoch key is above Epoch. Acquire returns it inside a
// *fence.UnavailableError.
type WentBackError struct {
	What     string // what went back: "cluster id", "raft term", "revision" or "epoch"
	Seen     uint64 // what was seen before
	Got      uint64 // what the latest answer says
	EpochKey string
	Epoch    int64 // the highest epoch seen
}

func (e *WentBackError) Error() string {
	how, or := "went back from %d to %d", ""
	switch e.What {
	case "cluster id":
		how = "changed from %x to %x"
	case "epoch":
		or = fmt.Sprintf("; if the key was deleted by hand, put what it held and restart the process: etcdctl put %s NUMBER", e.EpochKey)
	}
	return fmt.Sprintf("etcd: %s "+how+", as after a restore from a backup: tokens could be issued twice; "+
		"raise the epoch key %s to a number above %d that no database has seen%s", e.What, e.Seen, e.Got, e.EpochKey, e.Epoch, or)
}

// QueueLostError says that an Acquire lost its place in the queue before its
// turn came: its session ended, or somebody deleted its key. Nothing was
// acquired; acquiring again queues at the end. Acquire returns it inside a
// *fence.UnavailableError.
type QueueLostError struct {
	Resource string
	Reason   fence.LossReason
	Err      error // why the session was not renewed, nil if that isn't the reason
}

func (e *QueueLostError) Error() string {
	text := fmt.Sprintf("etcd: place in the queue of %s lost: %s", e.Resource, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns why the session was not renewed.
func (e *QueueLostError) Unwrap() error { return e.Err }

// Retryable says that acquiring again is right: nothing was acquired.
func (e *QueueLostError) Retryable() bool { return true }

// errSessionOver: the session ended before the request could be made.
var errSessionOver = errors.New("etcd: session is over")

// errSentTwice: the client sent an acquire Txn again, and an earlier one had
// written the key.
var errSentTwice = errors.New("etcd: the answer to the request was lost")

// errAtItsTurn: ctx ended at the very moment at which the turn came.
var errAtItsTurn = errors.New("etcd: gave up at its turn")

// errLeaseGone: etcd says that the session's lease doesn't exist.
var errLeaseGone error = rpctypes.ErrLeaseNotFound

// errStaleStream: etcd refuses on a watch stream what it allows on a new one.
var errStaleStream = errors.New("etcd: the token of the watch stream has expired")

// refusals are answers that etcd gives before it changes anything. Any other
// error leaves the outcome of a write open; so does that there is no space, which
// etcd may find out when the write has used it up.
var refusals = []error{
	rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyRequests, rpctypes.ErrRequestTooLarge, rpctypes.ErrPermissionDenied,
	rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrAuthFailed,
}

// refused reports whether err proves that a write had no effect.
func refused(err error) bool { return isAny(err, refusals) }

// ended is the error of what was done once ctx is done.
func ended(ctx context.Context, what string) error {
	return fmt.Errorf("etcd: %s: %w", what, endOf(ctx))
}

// endOf is why ctx is done.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

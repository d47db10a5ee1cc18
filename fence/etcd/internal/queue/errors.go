package queue

import (
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/fence"
)

// LostError says that an Acquire lost its queue position before its
// turn came: its session ended, or its key was deleted. Nothing was acquired;
// acquiring again queues at the end.
type LostError struct {
	Resource string
	Reason   fence.LossReason
	Err      error // why the session was not renewed, nil if that isn't the reason
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("etcd: queue position of %s lost: %s", e.Resource, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns why the session was not renewed.
func (e *LostError) Unwrap() error { return e.Err }

// Retryable returns true: nothing was acquired, so acquire again.
func (e *LostError) Retryable() bool { return true }

// UnavailableReason says what has to be fixed.
func (e *LostError) UnavailableReason() fence.UnavailableReason { return fence.QueueLost }

// errSessionOver: the session ended before the request could be made.
var errSessionOver = errors.New("etcd: session is over")

// errAtItsTurn: ctx ended at the moment the key became first in its queue, or before
// anything was done.
var errAtItsTurn = errors.New("etcd: gave up at its turn")

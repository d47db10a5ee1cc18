package worker

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// observer records what a worker's Guard reports. Checks never take that for the truth: see
// package history.
func (w *worker) observer(points *points) *guard.Observer {
	return &guard.Observer{
		Acquired: func(_ context.Context, g fence.Grant, _ time.Duration) {
			w.recordGrant(history.Acquired, g)
			points.reach(workload.PointAcquired)
		},
		Claimed: func(_ context.Context, g fence.Grant, _ time.Duration) {
			w.recordGrant(history.Claimed, g)
			points.reach(workload.PointClaimed)
		},
		LeaseLost: func(l *fence.LeaseLostError, _ bool) {
			e := of(history.Lost, l.Grant)
			e.Reason = string(l.Reason)
			w.record(e)
		},
		Released: func(g fence.Grant, err error) {
			e := of(history.Released, g)
			if err != nil {
				e.Error = err.Error()
			}
			w.record(e)
		},
		Rejected: func(_ context.Context, r *guard.RejectedError) { w.record(RejectionEvent(r)) },
		Resolved: w.resolved,
	}
}

// serializationFailure is the SQLSTATE of a serialization failure.
const serializationFailure = "40001"

// RejectionEvent is the event that records a rejection.
func RejectionEvent(r *guard.RejectedError) history.Event {
	e := of(history.Rejected, r.Grant)
	e.Reason, e.Stage, e.Current = string(r.Reason), string(r.Stage), int64(r.Current.Token)
	if r.Err != nil && workload.ClassOf(r.Err) != serializationFailure { // under stricter isolation levels a rejection shows as one
		e.Cause = r.Err.Error()
	}
	if r.RecordErr != nil {
		e.Error = r.RecordErr.Error()
	}
	return e
}

// resolved records how a COMMIT in doubt was resolved, for each of its grants.
func (w *worker) resolved(_ context.Context, grants []fence.Grant, applied bool, err error, _ time.Duration) {
	for _, g := range grants {
		e := of(history.Resolved, g)
		e.Applied = applied
		if err != nil {
			e.Error = err.Error()
		}
		w.record(e)
	}
}

func (w *worker) recordGrant(kind history.Kind, g fence.Grant) { w.record(of(kind, g)) }

func of(kind history.Kind, g fence.Grant) history.Event {
	return history.Event{Kind: kind, Resource: g.Resource, Epoch: g.Epoch, Token: int64(g.Token), Holder: g.Holder}
}

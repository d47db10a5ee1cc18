package worker

import (
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// observer tells what a worker's Guard does. Its word is no proof of anything: see
// package history.
func (w *worker) observer(points *points) *guard.Observer {
	return &guard.Observer{
		Acquired: func(g fence.Grant, _ time.Duration) {
			w.tellOf(history.Acquired, g)
			points.reach(workload.PointAcquired)
		},
		Claimed: func(g fence.Grant, _ time.Duration) {
			w.tellOf(history.Claimed, g)
			points.reach(workload.PointClaimed)
		},
		LeaseLost: func(l *fence.LeaseLostError) {
			e := of(history.Lost, l.Grant)
			e.Reason = string(l.Reason)
			w.tell(e)
		},
		Released: func(g fence.Grant, err error) {
			e := of(history.Released, g)
			if err != nil {
				e.Error = err.Error()
			}
			w.tell(e)
		},
		Rejected: func(r *guard.RejectedError) { w.tell(RejectedEvent(r)) },
		Resolved: w.resolved,
	}
}

// serializationFailure is its class.
const serializationFailure = "40001"

// RejectedEvent is what is recorded of a refusal.
func RejectedEvent(r *guard.RejectedError) history.Event {
	e := of(history.Refused, r.Grant)
	e.Reason, e.Stage, e.Current = string(r.Reason), string(r.Stage), int64(r.Current.Token)
	if r.Err != nil && workload.ClassOf(r.Err) != serializationFailure { // that is all that stricter isolation levels say
		e.Met = r.Err.Error()
	}
	if r.RecordErr != nil {
		e.Error = r.RecordErr.Error()
	}
	return e
}

// resolved tells of the answer about a COMMIT in doubt, for each of its grants.
func (w *worker) resolved(grants []fence.Grant, applied bool, err error, _ time.Duration) {
	for _, g := range grants {
		e := of(history.Resolved, g)
		e.Applied = applied
		if err != nil {
			e.Error = err.Error()
		}
		w.tell(e)
	}
}

func (w *worker) tellOf(kind history.Kind, g fence.Grant) { w.tell(of(kind, g)) }

func of(kind history.Kind, g fence.Grant) history.Event {
	return history.Event{Kind: kind, Resource: g.Resource, Epoch: g.Epoch, Token: int64(g.Token), Holder: g.Holder}
}

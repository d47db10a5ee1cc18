package etcd

import (
	"context"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// Check reports whether etcd would grant a lock now, by one request, which writes
// nothing: a majority answers, there is space, the client's user has the rights, and
// etcd has not gone back to an older state. With Config.MutexKeys the rights to lock
// keys are those to each resource, so they are not looked at. The errors are
// those of Acquire. It is for start-up and for readiness probes.
func (l *Locker) Check(ctx context.Context) error {
	const op = "check"
	switch {
	case l.closed.Load():
		return cluster.ErrLockerClosed
	case l.cluster.Closed():
		return l.cluster.Unavailable(op, cluster.ErrClientClosed)
	}
	request, cancel := context.WithTimeout(ctx, l.cluster.RequestTimeout)
	defer cancel()
	switch err := l.cluster.Probe(request); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return l.cluster.Unanswered(ctx, op)
	default:
		return l.cluster.Unavailable(op, err)
	}
}

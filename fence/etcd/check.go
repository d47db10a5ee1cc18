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
//
// Check also fails, with the Reason fence.Proxied, if a proxy such as etcd's grpc-proxy answers
// in place of a member. Acquire works there, but see the package comment. Check asks by a
// watch, until a member has answered one.
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
	err := l.cluster.Probe(request)
	if err == nil {
		err = l.watcher.CheckMember(request)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return l.cluster.Unanswered(ctx, op)
	default:
		return l.cluster.Unavailable(op, err)
	}
}

package scenario

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

var lostLock = Scenario{
	Name: "lost-lock", Family: "stalls", Stock: saleStock, Controls: []string{"redis-replica", "redlock", "postgres-advisory"},
	Summary:  "while a worker is paused the lock service loses its lock: by a restart, a failover, or a connection that is cut",
	Requires: []string{check.HitFault + "pause", check.HitFault + "lose"},
	Script: steps(func(s *script, ctx context.Context) error {
		return s.sale(ctx, 1, "do", workload.PointRead, s.lossOfLock())
	}),
}

// loss is how a paused worker loses its lock: what is done before it acquires the lock, and
// after it is paused.
type loss struct {
	before, after func(ctx context.Context) error
}

func nothing(context.Context) error { return nil }

// expiry is the loss of a lock that expires.
var expiry = loss{nothing, nothing}

// lossOfLock is how the group's lock service loses a lock before it expires.
func (s *script) lossOfLock() loss {
	l := loss{nothing, s.restartEtcd}
	switch s.Group() {
	case "redis-replica":
		l = loss{func(ctx context.Context) error { return s.Redis()[1].StopReplicating(ctx) }, s.failOverRedis}
	case "redlock":
		l = loss{s.stopMinority, s.restartEmpty}
	case "postgres-advisory":
		l.after = s.cutLockConnections
	}
	return loss{l.before, func(ctx context.Context) error {
		s.Trace().Record(history.Event{Kind: history.Injected, Name: "lose lock"})
		return l.after(ctx)
	}}
}

// restartEtcd kills and restarts etcd, which keeps its leases.
func (s *script) restartEtcd(ctx context.Context) error {
	revert, err := (fault.EtcdKill{Member: fault.Leader}).Inject(ctx, s)
	if err != nil {
		return err
	}
	return revert(ctx)
}

// failOverRedis promotes the replica, which doesn't have the latest locks.
func (s *script) failOverRedis(ctx context.Context) error {
	if err := s.Redis()[0].Kill(); err != nil {
		return err
	}
	return s.Redis()[1].Promote(ctx)
}

// stopMinority kills two of five nodes: three are enough for a lock.
func (s *script) stopMinority(context.Context) error {
	for _, node := range s.Redis()[3:] {
		if err := node.Kill(); err != nil {
			return err
		}
	}
	return nil
}

// restartEmpty restarts these two and a third, which has nothing on disk: three nodes
// without the lock.
func (s *script) restartEmpty(ctx context.Context) error {
	for _, node := range s.Redis()[2:] {
		if err := node.Restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// cutLockConnections terminates the idle sessions of the first worker that hold advisory
// locks.
func (s *script) cutLockConnections(ctx context.Context) error {
	_, err := s.Database().Exec(ctx, `
		select pg_terminate_backend(pid, 5000)
		from (select distinct pid from pg_locks join pg_stat_activity using (pid)
		      where locktype = 'advisory' and state = 'idle' and application_name = $1) as holder`, s.Process(0).Name())
	return err
}

package scenario

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

// loss is how a worker that stands still loses its lock: what has to be so before
// it acquires it, and what happens when it stands.
type loss struct {
	before, after func(ctx context.Context) error
}

func nothing(context.Context) error { return nil }

// expiry is the loss by time alone.
var expiry = loss{nothing, nothing}

// lossOfLock is how the group's lock service forgets a lock before its time.
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
		s.Trace().Record(history.Event{Kind: history.Strikes, Name: "lose lock"})
		return l.after(ctx)
	}}
}

// restartEtcd kills etcd and starts it again, which keeps what it has granted.
func (s *script) restartEtcd(ctx context.Context) error {
	revert, err := (fault.EtcdKill{Member: fault.Leader}).Inject(ctx, s)
	if err != nil {
		return err
	}
	return revert(ctx)
}

// failOverRedis promotes the replica, which has not heard of the latest locks.
func (s *script) failOverRedis(ctx context.Context) error {
	if err := s.Redis()[0].Kill(); err != nil {
		return err
	}
	return s.Redis()[1].Promote(ctx)
}

// stopMinority stops two of five nodes: three are enough for a lock.
func (s *script) stopMinority(context.Context) error {
	for _, node := range s.Redis()[3:] {
		if err := node.Kill(); err != nil {
			return err
		}
	}
	return nil
}

// restartEmpty brings these two back, and restarts a third, which has nothing on
// disk: three that know of no lock.
func (s *script) restartEmpty(ctx context.Context) error {
	for _, node := range s.Redis()[2:] {
		if err := node.Restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// cutLockConnections ends the sessions of the first worker that do nothing but hold
// advisory locks.
func (s *script) cutLockConnections(ctx context.Context) error {
	_, err := s.Database().Exec(ctx, `
		select pg_terminate_backend(pid, 5000)
		from (select distinct pid from pg_locks join pg_stat_activity using (pid)
		      where locktype = 'advisory' and state = 'idle' and application_name = $1) as holder`, s.Process(0).Name())
	return err
}

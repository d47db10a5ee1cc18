package scenario

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/storage"
)

var stalledHolder = Scenario{
	Name: "stalled-holder", Family: "stalls", Stock: saleStock,
	Controls: []string{"no-lock", "etcd-mutex", "redis-setnx", "redis-watchdog", "token-compare"},
	Summary:  "a worker is paused between read and write until another has its lock and has read; then both write",
	Requires: []string{check.HitFault + "pause", check.HitPaused + workload.PointRead},
	Script:   steps(func(s *script, ctx context.Context) error { return s.sale(ctx, 2, "do", expiry) }),
}

var unhinderedWriter = Scenario{
	Name: "unhindered-writer", Family: "stalls", Stock: saleStock, Unhindered: true,
	Summary:  "a worker is paused in a transaction that no successor may evict, for longer than its lock's time to live, and commits when another has the lock and has read: only the seal rejects it",
	Requires: []string{check.HitFault + "pause", check.HitPaused + workload.PointBegun, check.HitPaused + workload.PointRead, check.HitPaused + workload.PointWritten, check.HitRejected + string(storage.StageBegin), check.AtLeast(2, check.HitRejected+string(storage.StageSeal))},
	Script:   steps((*script).unhindered),
}

var lostLock = Scenario{
	Name: "lost-lock", Family: "stalls", Stock: saleStock, Controls: []string{"redlock", "postgres-advisory"},
	Summary:  "while a worker is paused the lock service loses its lock: by a restart, or a connection that is cut",
	Requires: []string{check.HitFault + "pause", check.HitFault + "lose"},
	Script:   steps(func(s *script, ctx context.Context) error { return s.sale(ctx, 1, "do", s.lossOfLock()) }),
}

// failover breaks locks without a fence although Postgres loses nothing: what was read on the old
// primary is written to the new one.
var failover = Scenario{
	Name: "failover", Family: "patroni", Patroni: true, Workers: 2, Stock: saleStock, Controls: []string{"etcd-mutex", "token-compare"},
	Summary:  "a worker is paused between reading in one transaction and writing in another; the primary of three Postgres servers under Patroni is killed, and a synchronous standby takes over; another worker gets the lock and reads; then both write",
	Requires: []string{check.HitFault + "pause", check.HitFault + "failover", check.HitPaused + workload.PointRead},
	Script: steps(func(s *script, ctx context.Context) error {
		return s.sale(ctx, 1, "hold", loss{nothing, func(ctx context.Context) error {
			s.Trace().Record(history.Event{Kind: history.Injected, Name: "failover"})
			return s.FailOver(ctx)
		}})
	}),
}

// stall is the schedule that breaks locks without a fence: one worker is paused at a point
// of an operation of that action, until another one has the lock and has read; then the
// first goes on and writes, and then the second.
func (s *script) stall(ctx context.Context, action, point string, loss loss) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	if err := loss.before(ctx); err != nil {
		return err
	}
	first, stopped, err := s.operateTo(ctx, 0, action, point, takeover)
	if err != nil || !stopped {
		return errors.Join(err, finish(ctx, first))
	}
	if err := loss.after(ctx); err != nil {
		return errors.Join(err, s.resume(0, point))
	}
	second, stopped, err := s.operateTo(ctx, 1, "do", workload.PointRead, takeover)
	if err := errors.Join(err, s.resume(0, point)); err != nil {
		return err
	}
	if err := finish(ctx, first); err != nil {
		return err
	}
	if stopped {
		if err := s.resume(1, workload.PointRead); err != nil {
			return err
		}
	}
	return finish(ctx, second)
}

// inTurn is a script without its faults: one operation after the other.
func (s *script) inTurn(ctx context.Context) error {
	for number := range 2 {
		op, err := s.Operate(number, workload.Op{Resource: s.sku()})
		if err != nil {
			return err
		}
		if err := finish(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

// sale stalls a worker between read and write of an action several times while stock is sold, and then sells the
// rest: what was sold twice is missing in the end.
func (s *script) sale(ctx context.Context, stalls int, action string, loss loss) error {
	for range stalls {
		if err := s.stall(ctx, action, workload.PointRead, loss); err != nil {
			return err
		}
	}
	s.FaultsOver()
	return s.sellOut(ctx)
}

// sellOut has one worker after the other sell until one finds too little in stock.
func (s *script) sellOut(ctx context.Context) error {
	for number := 0; ; number++ {
		op, err := s.Operate(number, workload.Op{Resource: s.sku()})
		if err != nil {
			return err
		}
		e, err := op.Wait(ctx)
		if err != nil {
			return err
		}
		if e.Class == history.ClassSoldOut || number > 10*saleStock {
			return nil
		}
	}
}

// saleStock is what a sale has in stock of each resource.
const saleStock = 24

// unhindered stalls a worker once at each point of its transaction. In other scenarios the
// transaction of a paused worker ends before it goes on, by its own bounds, by its
// successor's eviction, or by its context: nothing is left for the seal to reject. Paused
// before its first statement it has sent nothing, and the begin check rejects it.
func (s *script) unhindered(ctx context.Context) error {
	for _, point := range []string{workload.PointBegun, workload.PointRead, workload.PointWritten} {
		if err := s.stall(ctx, workload.ActionHeedless, point, expiry); err != nil {
			return err
		}
	}
	s.FaultsOver()
	return s.sellOut(ctx)
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
	switch service := s.Service(); {
	case service != nil:
		l = loss{service.Weaken, service.Lose}
	case s.Group() == "postgres-advisory":
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

// cutLockConnections terminates the idle sessions of the first worker that hold advisory
// locks.
func (s *script) cutLockConnections(ctx context.Context) error {
	_, err := s.Database().Exec(ctx, `
		select pg_terminate_backend(pid, 5000)
		from (select distinct pid from pg_locks join pg_stat_activity using (pid)
		      where locktype = 'advisory' and state = 'idle' and application_name = $1) as holder`, s.Process(0).Name())
	return err
}

package scenario

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/storage"
)

// scripts are the scenarios that go step by step.
var scripts = []Scenario{
	{
		Name: "stalled-holder", Family: "stalls", Stock: saleStock,
		Controls: []string{"no-lock", "etcd-mutex", "redis-setnx", "redis-watchdog", "token-compare", "lease-equality", "check-without-lock"},
		Story:    "a worker stands still between read and write until another has its lock and has read; then both write",
		Requires: []string{check.HitFault + "pause", check.HitStopped + workload.PointRead},
		Script:   steps(func(ctx context.Context, s *script) error { return s.sale(ctx, 2, workload.PointRead, expiry) }),
	},
	{
		Name: "stalled-writer", Family: "stalls", Stock: saleStock, Controls: []string{"client-clock"},
		Story:    "a worker stands still after its last check, before COMMIT is sent, until another has its lock and has read; then both write",
		Requires: []string{check.HitFault + "pause", check.HitStopped + workload.PointWritten},
		Script:   steps(func(ctx context.Context, s *script) error { return s.sale(ctx, 2, workload.PointWritten, expiry) }),
	},
	{
		Name: "unhindered-writer", Family: "stalls", Stock: saleStock, Unhindered: true,
		Story:    "a worker stands still in a transaction that nobody may end, for longer than its lock lives, and commits when another has the lock and has read: the seal alone is in its way",
		Requires: []string{check.HitFault + "pause", check.HitStopped + workload.PointBegun, check.HitStopped + workload.PointRead, check.HitStopped + workload.PointWritten, check.AtLeast(3, check.HitRefused+string(storage.StageSeal))},
		Script:   steps(func(ctx context.Context, s *script) error { return s.unhindered(ctx) }),
	},
	{
		Name: "lost-lock", Family: "stalls", Stock: saleStock, Controls: []string{"redis-replica", "redlock", "postgres-advisory"},
		Story:    "while a worker stands still the lock service loses its lock: a restart, a failover, a connection that is cut",
		Requires: []string{check.HitFault + "pause", check.HitFault + "lose"},
		Script:   steps(func(ctx context.Context, s *script) error { return s.sale(ctx, 1, workload.PointRead, s.lossOfLock()) }),
	},
	{
		Name: "death-while-locking", Family: "deaths", Controls: []string{"redis-setnx-expire"},
		Story:    "a worker is killed when it has just got the lock, and comes back; the others have to get the lock in time",
		Requires: []string{check.HitFault + "kill"},
		Script:   steps(func(ctx context.Context, s *script) error { return s.deathWhileLocking(ctx) }),
	},
	{
		Name: "expiry-at-every-await", Family: "awaits", Workers: 2,
		Story:    "a worker stands still at every place where an operation waits for the network, one after another, until its lease is over and another has taken over",
		Requires: []string{check.HitFault + "stop"},
		Script:   steps(func(ctx context.Context, s *script) error { return s.awaits(ctx, fault.ThenStop) }),
	},
	{
		Name: "death-at-every-await", Family: "awaits", Workers: 2,
		Story:    "a worker is killed at every place where an operation waits for the network, one after another, and another takes over",
		Requires: []string{check.HitFault + "die"},
		Script:   steps(func(ctx context.Context, s *script) error { return s.awaits(ctx, fault.ThenDie) }),
	},
	{
		Name: "pause-at-every-point", Family: "points", Workers: 2,
		Story: "a worker stands still at every stage of every kind of operation, one after another, until its lease is over and another has taken over",
		Requires: []string{
			check.HitFault + "pause", check.HitStopped + workload.PointAcquired, check.HitStopped + workload.PointClaimed, check.HitStopped + workload.PointBegun,
			check.HitStopped + workload.PointRead, check.HitStopped + workload.PointWritten, check.HitStopped + workload.PointCommit,
			check.HitRefused + string(storage.StageClaim), check.HitRefused + string(storage.StageBegin), check.HitRefused + string(storage.StageRun), check.HitEndedStale + string(storage.StageSeal),
		},
		Script: steps(func(ctx context.Context, s *script) error { return s.pointByPoint(ctx) }),
	},
	{
		Name: "isolated-holder", Family: "isolation", Workers: 2,
		Story:    "a worker is cut off from etcd, from Postgres and from both in the midst of an operation, and writes on while another takes over, or when it has",
		Requires: []string{check.HitFault + "partition", check.HitStopped + workload.PointRead, check.HitLost},
		Script:   steps(func(ctx context.Context, s *script) error { return s.isolations(ctx) }),
	},
	{
		Name: "etcd-leader", Family: "leaders", Members: 3,
		Story: "of three etcd members the leader is killed, stopped and cut off, one after another, while a holder stands still in the midst of an operation and others wait",
		Requires: []string{
			check.HitFault + "etcd-kill", check.HitFault + "etcd-pause", check.HitFault + "etcd-isolate",
			check.HitStopped + workload.PointRead, check.AtLeast(3, check.HitQueued),
		},
		Script: steps(func(ctx context.Context, s *script) error { return s.leaders(ctx) }),
	},
	{
		Name: "zombie-waiter", Family: "waiters", Workers: 2,
		Story:    "a waiter gives up while it can't reach etcd, and its process lives on; nobody may wait behind it",
		Requires: []string{check.HitFault + "partition", check.HitFault + "reset", check.AtLeast(2, check.HitQueued), check.HitFailed + "context ended"},
		Script:   steps(func(ctx context.Context, s *script) error { return s.ghosts(ctx) }),
	},
	{
		Name: "compaction", Family: "waiters", Workers: 2,
		Story:    "etcd forgets what the watch of a waiter that is cut off has still to show; the waiter has to learn of its turn nevertheless",
		Requires: []string{check.HitFault + "etcd-compact", check.HitCompacted, check.AtLeast(2, check.HitQueued)},
		Script:   steps(func(ctx context.Context, s *script) error { return s.compaction(ctx) }),
	},
	{
		Name: "first-use", Family: "crowds",
		Story:    "50 operations come at the same time to a resource that nobody has ever used",
		Requires: []string{check.AtLeast(firstUsers, check.HitTogether)},
		Script:   steps(func(ctx context.Context, s *script) error { return s.firstUse(ctx) }),
	},
	{
		Name: "herd", Family: "crowds", Lockers: herdOfOne, TTL: herdTTL,
		Story:    "300 wait for one lock, each with a lease of its own, and all these leases end at once",
		Requires: []string{check.HitFault + "etcd-pause", check.AtLeast(herdSize+1, check.HitQueued)},
		Script:   steps(func(ctx context.Context, s *script) error { return s.herd(ctx) }),
	},
	{
		Name: "nospace", Family: "nospace", Workers: 2,
		Story:    "etcd has used up its space: a holder works on for longer than a lease lives, nobody else can become one, and all can when there is space again",
		Requires: []string{check.HitFault + "etcd-nospace", check.HitFailed + workload.ClassFull},
		Script:   steps(func(ctx context.Context, s *script) error { return s.noSpace(ctx) }),
	},
	{
		Name: "forged-tokens", Family: "tokens", Workers: 2,
		Story: "an old grant is replayed, and tokens come that nobody has: of another resource, of another holder, absurdly high, beyond all bounds",
		Requires: []string{
			check.HitRefused + string(storage.StageClaim), string(storage.ReasonCollision), string(storage.ReasonTokenJump), check.HitStopped + workload.PointRead,
		},
		Script: steps(func(ctx context.Context, s *script) error { return s.tokens(ctx) }),
	},
	{
		Name: "late-commit", Family: "tokens", Workers: 2,
		Story:    "a COMMIT is held up on its way until it has been settled that it took no effect, and comes then, while nobody else does anything",
		Requires: []string{check.HitStopped + workload.PointWritten, check.HitResolvedNotApplied},
		Script:   steps(func(ctx context.Context, s *script) error { return s.lateCommit(ctx) }),
	},
	{
		Name: "lost-answer", Family: "answers", Workers: 2, Controls: []string{"etcd-mutex"},
		Story:    "the answer to a COMMIT is lost, its worker can't ask the database what became of it, and the operation is called again",
		Requires: []string{check.HitFault + "partition"},
		Script:   steps(func(ctx context.Context, s *script) error { return s.lostAnswer(ctx) }),
	},
	{
		Name: "user-code", Family: "user-code",
		Story:    "user code sends a COMMIT of its own, and begins another transaction behind it, rolls back to a savepoint, panics, and ends its goroutine",
		Requires: []string{check.HitFailed + workload.ClassEnded, check.HitFailed + "panicked", check.HitFailed + "goroutine ended"},
		Script:   steps(func(ctx context.Context, s *script) error { return s.misuse(ctx) }),
	},
}

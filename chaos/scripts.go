package chaos

import (
	"context"

	"github.com/fencekit/fencekit/chaos/check"
	"github.com/fencekit/fencekit/chaos/fault"
)

// scripts are the scenarios that go step by step.
func scripts() []Scenario {
	return []Scenario{
		{
			Name: "stalled-holder", Family: "stalls", Stock: saleStock,
			Controls: []string{"no-lock", "etcd-mutex", "redis-setnx", "redis-watchdog", "token-compare", "lease-equality", "check-without-lock"},
			Story:    "a worker stands still between read and write until another has its lock and has read; then both write",
			Meet:     []string{check.HitFault + "pause", check.HitStopped + PointRead},
			Script:   func(ctx context.Context, s *Stage) error { return s.sale(ctx, 2, PointRead, expiry) },
		},
		{
			Name: "stalled-writer", Family: "stalls", Stock: saleStock, Controls: []string{"client-clock"},
			Story:  "a worker stands still after its last check, before COMMIT is sent, until another has its lock and has read; then both write",
			Meet:   []string{check.HitFault + "pause", check.HitStopped + PointWritten},
			Script: func(ctx context.Context, s *Stage) error { return s.sale(ctx, 2, PointWritten, expiry) },
		},
		{
			Name: "lost-lock", Family: "stalls", Stock: saleStock, Controls: []string{"redis-replica", "redlock", "postgres-advisory"},
			Story:  "while a worker stands still the lock service loses its lock: a restart, a failover, a connection that is cut",
			Meet:   []string{check.HitFault + "pause", check.HitFault + "lose"},
			Script: func(ctx context.Context, s *Stage) error { return s.sale(ctx, 1, PointRead, s.lossOfLock()) },
		},
		{
			Name: "death-while-locking", Family: "deaths", Controls: []string{"redis-setnx-expire"},
			Story:  "a worker is killed when it has just got the lock, and comes back; the others have to get the lock in time",
			Meet:   []string{check.HitFault + "kill"},
			Script: func(ctx context.Context, s *Stage) error { return s.deathWhileLocking(ctx) },
		},
		{
			Name: "expiry-at-every-await", Family: "awaits", Workers: 2,
			Story:  "a worker stands still at every place where an operation waits for the network, one after another, until its lease is over and another has taken over",
			Meet:   []string{check.HitFault + "stop"},
			Script: func(ctx context.Context, s *Stage) error { return s.awaits(ctx, fault.ThenStop) },
		},
		{
			Name: "death-at-every-await", Family: "awaits", Workers: 2,
			Story:  "a worker is killed at every place where an operation waits for the network, one after another, and another takes over",
			Meet:   []string{check.HitFault + "die"},
			Script: func(ctx context.Context, s *Stage) error { return s.awaits(ctx, fault.ThenDie) },
		},
	}
}

package run

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/worker"
)

// Scenario is what goes wrong while a workload runs.
type Scenario struct {
	check.Scenario
	// Requires are the hits (see package check) without which a run is inconclusive.
	Requires []string
	// Patroni makes Postgres the primary of three servers in synchronous mode. Such a scenario runs with the
	// built-in workload, or if it is chosen.
	Patroni bool
	// Stock is what the built-in workload has of each resource; default plenty.
	Stock int

	members int // of etcd; default 1
	workers int // number of worker processes; default 3
	// unhindered leaves only the fence to stop a late transaction: it may be idle for long, and no worker may
	// evict another.
	unhindered bool
	beside     bool // Fencekit's locks are in Postgres
	// A scenario has either schedule or script.
	schedule func(random *rand.Rand) []step
	// script fails with errWrong if the code under test did not do what it must.
	script func(s *environment, ctx context.Context) error
}

// IsScript reports whether no seed makes its steps.
func (s Scenario) IsScript() bool { return s.script != nil }

func (s Scenario) faults(seed uint64) []step {
	if s.schedule == nil {
		return nil
	}
	return s.schedule(worker.Rand(seed, s.Name))
}

// Scenarios are all scenarios, in the order in which they run. Each schedule begins with a fault that every seed
// has, so that every run has what the scenario requires; slow operations run by then.
var Scenarios = []Scenario{
	{
		Scenario: check.Scenario{
			// The control that breaks without faults as well is here: in a script no operations race.
			Name: "pauses", Family: "pauses", Controls: []string{"no-lock", "etcd-mutex"},
			Summary: "workers are paused by SIGSTOP for longer than their locks' time to live: anywhere, between read and write, before COMMIT, and after COMMIT was sent",
		},
		Requires: []string{check.HitFault + "pause"},
		schedule: pauses,
	},
	{
		Scenario: check.Scenario{
			Name: "partitions", Family: "partitions", Controls: []string{"etcd-mutex"},
			Summary: "workers are cut off from etcd, from Postgres or from both, in either direction, slowed down, or left with half-open connections",
		},
		Requires: []string{check.HitFault + "partition"},
		schedule: partitions,
	},
	{
		Scenario: check.Scenario{
			Name: "crashes", Family: "crashes", Controls: []string{"postgres-advisory"},
			Summary: "workers are killed, anywhere and at every point of an operation; backends are terminated in mid-transaction, connections to Postgres are reset; Postgres crashes and recovers",
		},
		Requires: []string{check.HitFault + "kill", check.HitFault + "postgres-crash"},
		schedule: crashes,
	},
	{
		Scenario: check.Scenario{
			Name: "unknown-commits", Family: "unknown-commits", Controls: []string{"etcd-mutex", "token-compare", "postgres-advisory"},
			Summary: "COMMITs are lost, or their answers are, or they arrive much later; backends are terminated meanwhile",
		},
		Requires: []string{check.HitFault + "commit-swallowed", check.HitFault + "commit-unheard", check.HitFault + "commit-held", check.HitResolvedApplied, check.HitResolvedNotApplied},
		schedule: unknownCommits,
	},
	{
		Scenario: check.Scenario{
			Name: "lock-service", Family: "lock-service", Controls: []string{"etcd-mutex"},
			Summary: "of three etcd members the leader, or another one, is killed, paused or isolated; leases are revoked and lock keys deleted",
		},
		Requires: []string{check.HitFault + "etcd-kill", check.HitFault + "revoke"},
		members:  3,
		schedule: lockService,
	},
	{
		Scenario: check.Scenario{
			Name: "claims-within", Family: "claims-within", Controls: []string{"etcd-mutex", "postgres-advisory"},
			Summary: "locks are in Postgres, and calls claim within their transactions: workers are paused, killed, and cut off from Postgres; backends are terminated; COMMITs are lost, or arrive late",
		},
		Requires: []string{check.HitOwn, check.HitFault + "pause", check.HitFault + "commit-held", check.HitResolvedApplied},
		beside:   true,
		schedule: claimsWithin,
	},
	stalledHolder, unhinderedWriter, lostLock, expiryAtEveryAwait, lostAnswer, failover,
}

// Describe describes all scenarios.
func Describe() (all []check.Scenario) {
	for _, s := range Scenarios {
		all = append(all, s.Scenario)
	}
	return all
}

// window is how long a schedule goes on.
const window = 5 * time.Second

// spread returns a schedule that begins with first, and has others at random times, about every pace.
func spread(random *rand.Rand, first step, pace time.Duration, others func() step) []step {
	first.at = 300 * time.Millisecond
	steps := []step{first}
	for at := first.at + worker.Between(random, pace/2, pace); at < window; at += worker.Between(random, pace/2, pace*3/2) {
		next := others()
		next.at = at
		steps = append(steps, next)
	}
	return steps
}

// pastTTL is longer than the TTL, and aroundTTL may be shorter.
func pastTTL(r *rand.Rand) time.Duration {
	return worker.Between(r, worker.TTL+worker.TTL/4, 2*worker.TTL)
}
func aroundTTL(r *rand.Rand) time.Duration { return worker.Between(r, worker.TTL/4, 2*worker.TTL) }

func pauses(r *rand.Rand) []step {
	return spread(r, step{fault: pauseWorker(r.IntN(3), worker.PointRead), lasts: pastTTL(r)}, time.Second, func() step {
		w := r.IntN(3)
		return step{fault: worker.Pick(r, pauseWorker(w, anywhere), pauseWorker(w, worker.Pick(r, worker.Points...))), lasts: aroundTTL(r)}
	})
}

func partitions(r *rand.Rand) []step {
	return spread(r, step{fault: partition(r.IntN(3), toEtcd, bothWays), lasts: pastTTL(r)}, 800*time.Millisecond, func() step {
		w, server := r.IntN(3), worker.Pick(r, toEtcd, toPostgres, toBoth)
		f := worker.Pick(r,
			partition(w, server, worker.Pick(r, requests, answers, bothWays)),
			partition(w, server, bothWays),
			delay(w, server, worker.Between(r, 20*time.Millisecond, 300*time.Millisecond), worker.Between(r, time.Millisecond, 20*time.Millisecond)),
			halfOpen(w, server),
			reset(w, server))
		return step{fault: f, lasts: aroundTTL(r)}
	})
}

func crashes(r *rand.Rand) []step {
	// The last fault, so that operations that were slow when connections were reset write first.
	crash := step{at: worker.Between(r, window-time.Second, window), lasts: worker.Between(r, 50*time.Millisecond, time.Second), fault: postgresCrash()}
	steps := spread(r, step{fault: killWorker(r.IntN(3), anywhere), lasts: 500 * time.Millisecond}, 700*time.Millisecond, func() step {
		w := r.IntN(3)
		f := worker.Pick(r, killWorker(w, anywhere), killWorker(w, worker.Pick(r, worker.Points...)), terminate(w), reset(w, toPostgres))
		return step{fault: f, lasts: worker.Between(r, 50*time.Millisecond, time.Second)}
	})
	// As when a proxy between workers and Postgres restarts: shortly before the first slow
	// operations write, so that few are killed in between.
	for w, at := 0, worker.Between(r, 2*time.Second, 2500*time.Millisecond); w < 3; w++ {
		steps = append(steps, step{at: at, fault: reset(w, toPostgres)})
	}
	return append(steps, crash)
}

func unknownCommits(r *rand.Rand) []step {
	lose := func(number int, loss string, ofOperation bool) step {
		return step{fault: loseCommit(number, loss, ofOperation), lasts: worker.Between(r, 10*time.Millisecond, worker.TTL)}
	}
	// Each worker loses its first COMMIT in another way.
	first := r.Perm(3)
	steps := spread(r, lose(first[0], "swallowed", true), 400*time.Millisecond, func() step {
		if r.IntN(4) == 0 {
			return step{fault: terminate(r.IntN(3))}
		}
		return lose(r.IntN(3), worker.Pick(r, "swallowed", "unheard", "held"), worker.Pick(r, true, false))
	})
	for i, loss := range []string{"unheard", "held"} {
		next := lose(first[i+1], loss, true)
		next.at = steps[0].at
		steps = append(steps, next)
	}
	return steps
}

func claimsWithin(r *rand.Rand) []step {
	steps := spread(r, step{fault: pauseWorker(r.IntN(3), worker.PointRead), lasts: pastTTL(r)}, 400*time.Millisecond, func() step {
		w := r.IntN(3)
		return step{lasts: worker.Between(r, 50*time.Millisecond, 2*worker.TTL), fault: worker.Pick(r,
			pauseWorker(w, worker.Pick(r, anywhere, worker.PointRead, worker.PointWritten, worker.PointCommit)),
			killWorker(w, worker.Pick(r, anywhere, worker.PointWritten, worker.PointCommit)),
			partition(w, toPostgres, worker.Pick(r, requests, answers, bothWays)), halfOpen(w, toPostgres), terminate(w),
			loseCommit(w, worker.Pick(r, "swallowed", "unheard", "held"), true))}
	})
	for w, loss := range []string{"unheard", "held"} {
		steps = append(steps, step{at: steps[0].at, fault: loseCommit(w, loss, true), lasts: worker.TTL})
	}
	for w := range 3 { // as in crashes
		steps = append(steps, step{at: worker.Between(r, 2*time.Second, 2500*time.Millisecond), fault: reset(w, toPostgres)})
	}
	return steps
}

func lockService(r *rand.Rand) []step {
	// One member at a time: two of three are the quorum.
	steps := spread(r, step{fault: revokeLease(r.IntN(9))}, 400*time.Millisecond, func() step {
		return step{fault: worker.Pick(r, revokeLease(r.IntN(9)), deleteLock(r.IntN(9)))}
	})
	member := worker.Pick(r, leader, 0, 1, 2)
	return append(steps,
		step{at: 800 * time.Millisecond, lasts: worker.Between(r, 500*time.Millisecond, 1500*time.Millisecond), fault: etcdKill(leader)},
		step{at: window - time.Second, lasts: worker.Between(r, 500*time.Millisecond, 2*worker.TTL), fault: worker.Pick(r, etcdPause(member), etcdIsolate(member))})
}

package scenario

import (
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// families are the scenarios with random faults under load. Each schedule begins with a
// fault that every seed has, so that every run has what the scenario requires; slow
// operations run by then (workload.Slow). Controls are those that the scenario breaks.
func families() []Scenario {
	return []Scenario{pauses(), stalls(), partitions(), crashes(), unknowns(), lockService()}
}

// window is how long a schedule goes on, from the beginning of the load. A whole run takes
// about 8 s.
const window = 5 * time.Second

// spread returns a schedule that begins with first, soon after the beginning of the load,
// and has others at random times, about every pace. The faults of one worker may overlap.
func spread(random *rand.Rand, first fault.Step, pace time.Duration, others func() fault.Step) []fault.Step {
	first.At = 300 * time.Millisecond
	steps := []fault.Step{first}
	for at := first.At + workload.Between(random, pace/2, pace); at < window; at += workload.Between(random, pace/2, pace*3/2) {
		step := others()
		step.At = at
		steps = append(steps, step)
	}
	return steps
}

// pastTTL is a random time longer than the TTL.
func pastTTL(random *rand.Rand) time.Duration {
	return workload.Between(random, workload.TTL+workload.TTL/4, workload.TTL+workload.TTL)
}

func pauses() Scenario {
	return Scenario{
		// The control that breaks without faults as well is here: in a script no operations race.
		Name: "pauses", Family: "pauses", Controls: []string{"no-lock", "etcd-mutex", "redis-watchdog"},
		Summary:  "workers are paused by SIGSTOP for longer than their locks' time to live: anywhere, between read and write, before COMMIT, and after COMMIT was sent",
		Requires: []string{check.HitFault + "pause"},
		Schedule: func(r *rand.Rand) []fault.Step {
			return spread(r, fault.Step{Fault: fault.PauseAt{Worker: r.IntN(3), Point: workload.PointRead}, For: pastTTL(r)}, time.Second, func() fault.Step {
				w := r.IntN(3)
				f := workload.Pick[fault.Fault](r, fault.Pause{Worker: w}, fault.PauseAt{Worker: w, Point: workload.Pick(r, workload.Points...)})
				return fault.Step{Fault: f, For: workload.Between(r, workload.TTL/4, 2*workload.TTL)}
			})
		},
	}
}

func stalls() Scenario {
	return Scenario{
		Name: "stop-the-world", Family: "stop-the-world", Controls: []string{"etcd-mutex", "redis-watchdog"},
		Summary:  "the Go runtime of workers stops the world, as the garbage collector does, for longer than their locks' time to live",
		Requires: []string{check.HitFault + "stop-the-world"},
		Schedule: func(r *rand.Rand) []fault.Step {
			return spread(r, fault.Step{Fault: fault.StopTheWorld{Worker: r.IntN(3)}, For: pastTTL(r)}, 1500*time.Millisecond, func() fault.Step {
				return fault.Step{Fault: fault.StopTheWorld{Worker: r.IntN(3)}, For: workload.Between(r, workload.TTL/4, 2*workload.TTL)}
			})
		},
	}
}

func partitions() Scenario {
	return Scenario{
		Name: "partitions", Family: "partitions", Controls: []string{"etcd-mutex"},
		Summary:  "workers are cut off from etcd, from Postgres or from both, in either direction, slowed down, or left with half-open connections",
		Requires: []string{check.HitFault + "partition"},
		Schedule: func(r *rand.Rand) []fault.Step {
			return spread(r, fault.Step{Fault: fault.Partition{Worker: r.IntN(3), From: fault.ToEtcd, Way: fault.BothWays}, For: pastTTL(r)}, 800*time.Millisecond, func() fault.Step {
				w, server := r.IntN(3), workload.Pick(r, fault.ToEtcd, fault.ToPostgres, fault.ToBoth)
				f := workload.Pick[fault.Fault](r,
					fault.Partition{Worker: w, From: server, Way: workload.Pick(r, fault.Requests, fault.Answers, fault.BothWays)},
					fault.Partition{Worker: w, From: server, Way: fault.BothWays},
					fault.Delay{Worker: w, To: server, Latency: workload.Between(r, 20*time.Millisecond, 300*time.Millisecond), Jitter: workload.Between(r, time.Millisecond, 20*time.Millisecond)},
					fault.HalfOpen{Worker: w, To: server},
					fault.Reset{Worker: w, To: server})
				return fault.Step{Fault: f, For: workload.Between(r, workload.TTL/4, 2*workload.TTL)}
			})
		},
	}
}

func crashes() Scenario {
	return Scenario{
		Name: "crashes", Family: "crashes", Controls: []string{"postgres-advisory"},
		Summary:  "workers are killed, anywhere and at every point of an operation; backends are terminated in mid-transaction, connections to Postgres are reset; Postgres crashes and recovers",
		Requires: []string{check.HitFault + "kill", check.HitFault + "postgres-crash"},
		Schedule: func(r *rand.Rand) []fault.Step {
			// The last fault, so that operations that were slow when connections were reset write first.
			crash := fault.Step{At: workload.Between(r, window-time.Second, window), For: workload.Between(r, 50*time.Millisecond, time.Second), Fault: fault.PostgresCrash{}}
			steps := spread(r, fault.Step{Fault: fault.Kill{Worker: r.IntN(3)}, For: 500 * time.Millisecond}, 700*time.Millisecond, func() fault.Step {
				w := r.IntN(3)
				f := workload.Pick[fault.Fault](r, fault.Kill{Worker: w}, fault.KillAt{Worker: w, Point: workload.Pick(r, workload.Points...)}, fault.Terminate{Worker: w}, fault.Reset{Worker: w, To: fault.ToPostgres})
				return fault.Step{Fault: f, For: workload.Between(r, 50*time.Millisecond, time.Second)}
			})
			// As when a proxy between workers and Postgres restarts: shortly before the first slow
			// operations write, so that few are killed in between.
			for w, at := 0, workload.Between(r, 2*time.Second, 2500*time.Millisecond); w < 3; w++ {
				steps = append(steps, fault.Step{At: at, Fault: fault.Reset{Worker: w, To: fault.ToPostgres}})
			}
			return append(steps, crash)
		},
	}
}

func unknowns() Scenario {
	return Scenario{
		Name: "unknown-commits", Family: "unknown-commits", Controls: []string{"etcd-mutex", "token-compare", "postgres-advisory"},
		Summary:  "COMMITs are lost, or their answers are, or they arrive much later; backends are terminated meanwhile",
		Requires: []string{check.HitFault + "commit-swallowed", check.HitFault + "commit-unheard", check.HitFault + "commit-held", check.HitResolvedApplied, check.HitResolvedNotApplied},
		Schedule: func(r *rand.Rand) []fault.Step {
			lose := func(worker int, loss fault.Loss, operation bool) fault.Step {
				return fault.Step{Fault: fault.LoseCommit{Worker: worker, Loss: loss, Operation: operation}, For: workload.Between(r, 10*time.Millisecond, workload.TTL)}
			}
			// Each worker loses its first COMMIT in another way.
			first := r.Perm(3)
			steps := spread(r, lose(first[0], fault.Swallowed, true), 400*time.Millisecond, func() fault.Step {
				if r.IntN(4) == 0 {
					return fault.Step{Fault: fault.Terminate{Worker: r.IntN(3)}}
				}
				return lose(r.IntN(3), workload.Pick(r, fault.Swallowed, fault.Unheard, fault.Held), workload.Pick(r, true, false))
			})
			for i, loss := range []fault.Loss{fault.Unheard, fault.Held} {
				step := lose(first[i+1], loss, true)
				step.At = steps[0].At
				steps = append(steps, step)
			}
			return steps
		},
	}
}

func lockService() Scenario {
	return Scenario{
		Name: "lock-service", Family: "lock-service", Members: 3, Controls: []string{"etcd-mutex"},
		Summary:  "of three etcd members the leader, or another one, is killed, paused or isolated; leases are revoked and lock keys deleted",
		Requires: []string{check.HitFault + "etcd-kill", check.HitFault + "revoke"},
		Schedule: func(r *rand.Rand) []fault.Step {
			// One member at a time: two of three are the quorum.
			steps := spread(r, fault.Step{Fault: fault.RevokeLease{Index: r.IntN(9)}}, 400*time.Millisecond, func() fault.Step {
				return fault.Step{Fault: workload.Pick[fault.Fault](r, fault.RevokeLease{Index: r.IntN(9)}, fault.DeleteLock{Index: r.IntN(9)})}
			})
			member := workload.Pick(r, fault.Leader, 0, 1, 2)
			second := workload.Pick[fault.Fault](r, fault.EtcdPause{Member: member}, fault.EtcdIsolate{Member: member})
			return append(steps,
				fault.Step{At: 800 * time.Millisecond, For: workload.Between(r, 500*time.Millisecond, 1500*time.Millisecond), Fault: fault.EtcdKill{Member: fault.Leader}},
				fault.Step{At: window - time.Second, For: workload.Between(r, 500*time.Millisecond, 2*workload.TTL), Fault: second})
		},
	}
}

package chaos

import (
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
)

// families are the scenarios with random faults under load. Each schedule begins
// with a fault that every seed has, so that every run meets what it has to meet. It
// finds slow operations under way (see slow). Controls are those that it breaks:
// README.md says how often.
func families() []Scenario {
	return []Scenario{pauses(), stalls(), partitions(), crashes(), unknowns(), lockService()}
}

// window is how long a schedule goes on, from the beginning of the load. With the
// beginning and the end of a run it takes about 8 s.
const window = 5 * time.Second

// spread lets first happen soon after the load has begun, and others at random
// times, about every pace, for as long as how says. The times of one worker's faults
// may overlap.
func spread(random *rand.Rand, first Step, pace time.Duration, others func() Step) []Step {
	first.At = 300 * time.Millisecond
	steps := []Step{first}
	for at := first.At + between(random, pace/2, pace); at < window; at += between(random, pace/2, pace*3/2) {
		step := others()
		step.At = at
		steps = append(steps, step)
	}
	return steps
}

// between is a random time of whole milliseconds.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64((most-least)/time.Millisecond)))*time.Millisecond
}

// pastTTL is for longer than a lock lives.
func pastTTL(random *rand.Rand) time.Duration {
	return between(random, TTL+TTL/4, TTL+TTL)
}

// pick returns one of several.
func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

func pauses() Scenario {
	return Scenario{
		// Those that break without faults, too, show it here: a script has nobody race.
		Name: "pauses", Family: "pauses", Controls: []string{"no-lock", "check-without-lock", "etcd-mutex", "redis-watchdog"},
		Story: "workers are stopped by SIGSTOP for longer than their locks live, anywhere, and between read and write, before COMMIT and after it was sent",
		Meet:  []string{check.HitFault + "pause"},
		Schedule: func(r *rand.Rand) []Step {
			return spread(r, Step{Fault: fault.PauseAt{Worker: r.IntN(3), Point: PointRead}, For: pastTTL(r)}, time.Second, func() Step {
				w := r.IntN(3)
				f := pick[fault.Fault](r, fault.Pause{Worker: w}, fault.PauseAt{Worker: w, Point: pick(r, stages...)})
				return Step{Fault: f, For: between(r, TTL/4, 2*TTL)}
			})
		},
	}
}

func stalls() Scenario {
	return Scenario{
		Name: "stop-the-world", Family: "stop-the-world", Controls: []string{"etcd-mutex", "redis-watchdog"},
		Story: "the Go runtime of workers stops the world, as a garbage collector does, for longer than their locks live",
		Meet:  []string{check.HitFault + "stop-the-world"},
		Schedule: func(r *rand.Rand) []Step {
			return spread(r, Step{Fault: fault.StopTheWorld{Worker: r.IntN(3)}, For: pastTTL(r)}, 1500*time.Millisecond, func() Step {
				return Step{Fault: fault.StopTheWorld{Worker: r.IntN(3)}, For: between(r, TTL/4, 2*TTL)}
			})
		},
	}
}

func partitions() Scenario {
	return Scenario{
		Name: "partitions", Family: "partitions", Controls: []string{"etcd-mutex", "lease-equality"},
		Story: "workers are cut off from etcd, from Postgres or from both, in either direction, slowed down, or left with connections whose far end has vanished",
		Meet:  []string{check.HitFault + "partition"},
		Schedule: func(r *rand.Rand) []Step {
			return spread(r, Step{Fault: fault.Partition{Worker: r.IntN(3), From: fault.ToEtcd, Way: fault.BothWays}, For: pastTTL(r)}, 800*time.Millisecond, func() Step {
				w, server := r.IntN(3), pick(r, fault.ToEtcd, fault.ToPostgres, fault.ToBoth)
				f := pick[fault.Fault](r,
					fault.Partition{Worker: w, From: server, Way: pick(r, fault.Requests, fault.Answers, fault.BothWays)},
					fault.Partition{Worker: w, From: server, Way: fault.BothWays},
					fault.Delay{Worker: w, To: server, Latency: between(r, 20*time.Millisecond, 300*time.Millisecond), Jitter: between(r, time.Millisecond, 20*time.Millisecond)},
					fault.HalfOpen{Worker: w, To: server},
					fault.Reset{Worker: w, To: server})
				return Step{Fault: f, For: between(r, TTL/4, 2*TTL)}
			})
		},
	}
}

func crashes() Scenario {
	return Scenario{
		Name: "crashes", Family: "crashes", Controls: []string{"postgres-advisory"},
		Story: "workers are killed, anywhere and at every stage of an operation; backends are terminated in mid-transaction, connections to Postgres reset; Postgres crashes and recovers",
		Meet:  []string{check.HitFault + "kill", check.HitFault + "postgres-crash"},
		Schedule: func(r *rand.Rand) []Step {
			// The last, so that what was slow when connections were reset comes to write.
			crash := Step{At: between(r, window-time.Second, window), For: between(r, 50*time.Millisecond, time.Second), Fault: fault.PostgresCrash{}}
			steps := spread(r, Step{Fault: fault.Kill{Worker: r.IntN(3)}, For: 500 * time.Millisecond}, 700*time.Millisecond, func() Step {
				w := r.IntN(3)
				f := pick[fault.Fault](r, fault.Kill{Worker: w}, fault.DieAt{Worker: w, Point: pick(r, stages...)}, fault.Terminate{Worker: w}, fault.Reset{Worker: w, To: fault.ToPostgres})
				return Step{Fault: f, For: between(r, 50*time.Millisecond, time.Second)}
			})
			// As when a proxy between them and Postgres is started anew. Not long before what
			// is slow from the beginning comes to write: a kill in between would end it.
			for w, at := 0, between(r, 2*time.Second, 2500*time.Millisecond); w < 3; w++ {
				steps = append(steps, Step{At: at, Fault: fault.Reset{Worker: w, To: fault.ToPostgres}})
			}
			return append(steps, crash)
		},
	}
}

func unknowns() Scenario {
	return Scenario{
		Name: "unknown-commits", Family: "unknown-commits", Controls: []string{"etcd-mutex", "token-compare", "postgres-advisory"},
		Story: "COMMITs are lost on the way, or their answers are, or they arrive much later; backends are terminated meanwhile",
		Meet:  []string{check.HitFault + "commit-swallowed", check.HitFault + "commit-unheard", check.HitFault + "commit-held", check.HitResolvedApplied, check.HitResolvedNotApplied},
		Schedule: func(r *rand.Rand) []Step {
			lose := func(worker int, loss fault.Loss, operation bool) Step {
				return Step{Fault: fault.LoseCommit{Worker: worker, Loss: loss, Operation: operation}, For: between(r, 10*time.Millisecond, TTL)}
			}
			// Each worker loses one in its own way first.
			first := r.Perm(3)
			steps := spread(r, lose(first[0], fault.Swallowed, true), 400*time.Millisecond, func() Step {
				if r.IntN(4) == 0 {
					return Step{Fault: fault.Terminate{Worker: r.IntN(3)}}
				}
				return lose(r.IntN(3), pick(r, fault.Swallowed, fault.Unheard, fault.Held), pick(r, true, false))
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
		Name: "lock-service", Family: "lock-service", Members: 3, Controls: []string{"etcd-mutex", "lease-equality"},
		Story: "of three etcd members the leader, or another one, is killed, stopped or cut off; leases are revoked and lock keys deleted",
		Meet:  []string{check.HitFault + "etcd-kill", check.HitFault + "revoke"},
		Schedule: func(r *rand.Rand) []Step {
			// One member at a time: two of three have to be there.
			steps := spread(r, Step{Fault: fault.RevokeLease{Index: r.IntN(9)}}, 400*time.Millisecond, func() Step {
				return Step{Fault: pick[fault.Fault](r, fault.RevokeLease{Index: r.IntN(9)}, fault.DeleteLock{Index: r.IntN(9)})}
			})
			member := pick(r, fault.Leader, 0, 1, 2)
			second := pick[fault.Fault](r, fault.EtcdPause{Member: member}, fault.EtcdIsolate{Member: member})
			return append(steps,
				Step{At: 800 * time.Millisecond, For: between(r, 500*time.Millisecond, 1500*time.Millisecond), Fault: fault.EtcdKill{Member: fault.Leader}},
				Step{At: window - time.Second, For: between(r, 500*time.Millisecond, 2*TTL), Fault: second})
		},
	}
}

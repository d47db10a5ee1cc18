// Package chaos runs guarded code in real processes, injects the faults of machines and networks into them,
// and judges what happened.
//
// A Workload is the code under test: it prepares data, operates on it, and checks it. A scenario is what goes
// wrong meanwhile: a schedule of faults that is made from a seed, or a script. Worker processes are this binary
// itself, executed again (Main, Reexec). They write a history, observers record what happened from outside, and
// checks compare both. The same scenario runs with controls: recipes that are known to break under its faults.
//
//	func TestMain(m *testing.M) { chaos.Main(m, deductions{}) }
//
//	func TestChaos(t *testing.T) { chaos.Test(t, chaos.Config{Workload: deductions{}}) }
//
// README.md has a whole example (examples/counter), how to read a verdict, and what it doesn't show: the same
// seed is the same schedule, not the same run, and "no violation in n runs" is worth as much as the damage that
// the same faults did to the controls.
package chaos

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/worker"
)

// Workload is guarded code under test, with the data that it works on. It is a value without
// state: its methods are called in different processes.
//
//	Name() string        // unique in its binary
//	Resources() []string // that operations use, at least one
//	Prepare(ctx context.Context, db *pgxpool.Pool) error           // makes tables and data
//	Operate(ctx context.Context, env *chaos.Env, op chaos.Op) error // does one operation
//	Check(ctx context.Context, db *pgxpool.Pool) error             // its error says what is wrong with the data at the end
//
// Operate is called in worker processes, from several goroutines. It returns nil if the operation
// took effect, an error that is guard.ErrUnknownOutcome if that is unknown, and any other error if
// it had no effect and never will: guard.Do returns just these. If it panics the run is violated. It
// has to return when ctx ends, which is after a minute.
type Workload = worker.Workload

// Op is one operation that a run asks for: ID, Resource, and Rand, a source of its random
// decisions.
type Op = worker.Op

// Env is what an operation works with, in its worker process: Fencekit's Guard and Locker, which are
// nil in a control; a Pool for use outside of guarded transactions; Do and Hold, which run work under
// Fencekit or the run's control; and Point, by which it says that it has reached a point.
type Env = worker.Env

// PointRead is the point at which an operation has read, and not yet written. A Workload
// reports it by Env.Point; a run may pause or kill the worker process there.
const PointRead = worker.PointRead

// Work is what is done in one transaction of Env.Do and Hold. tokens has the token of each
// resource; a control without tokens leaves it empty.
type Work = worker.Work

// Transact runs work in a transaction.
type Transact = worker.Transact

// ErrConfig: a Config is invalid, or the binary doesn't call this package as it must.
var ErrConfig = worker.ErrConfig

// ErrWorkload: a run was not possible because of the Workload: its Prepare failed, or its
// Operate can't run under a control.
var ErrWorkload = worker.ErrWorkload

// Verdict is the result of a run or of a suite.
type Verdict = check.Verdict

// The verdicts.
const (
	Pass         = check.Pass         // every property held, and what the scenario requires happened
	Violated     = check.Violated     // a property was violated
	Inconclusive = check.Inconclusive // nothing was violated, and nothing is proved
)

// Fenced is the group of runs under Fencekit. The others are controls.
const Fenced = check.Fenced

// Suite is several runs, Runs, and their common Verdict, for a Reason in one sentence.
type Suite = check.Suite

// Result is one run of a Scenario by one Group, with a Seed: its Verdict and Reason, what the
// Workload's Check said (Failed), what else was wrong with the code under test (Wrong), the
// Findings of each property, and Counts.
type Result = check.Run

// Config says what to run. The zero value of each field means its default.
type Config struct {
	// Scenarios are names, families or patterns (path.Match) of scenarios, as
	// "fencectl-chaos list" shows them. Default: all, but for those of the family patroni if
	// Workload is set: they need Patroni and HAProxy on the machine.
	Scenarios []string
	// Groups are Fenced and names of controls, or patterns. Default: all; for Test
	// Fenced alone.
	Groups []string
	// Seed is the first seed, Seeds how many of them each scenario runs with. Default
	// 1 and 1.
	Seed  uint64
	Seeds int
	// Duration, in place of Seeds, is for how long new runs are begun; the runs with the
	// first seed are all done, however long that takes. Default: Seeds decides.
	Duration time.Duration
	// ScriptSeeds is how many of the seeds scripts and controls run with. Scripts do the
	// same with every seed, but not at the same moments. Default 1.
	ScriptSeeds int
	// Dir gets the files of the runs. It is created, and must be empty.
	Dir string
	// Parallel is how many runs go on at the same time, each on its own servers. Default 1.
	Parallel int
	// Workload is the code under test. Default: one that sells what is in stock.
	Workload Workload
	// Progress is called when a run begins, and when it ends. Calls don't overlap. Default:
	// no calls.
	Progress func(Progress)
}

// Progress is how far a suite is.
type Progress struct {
	Run   *Result // that begins or has ended
	Ended bool    // Run has ended, and its Verdict is known
	Done  int     // number of runs that have ended
	Total int     // number of runs in all; with a Duration those with the first seed, which are all done
}

// Run does the runs that cfg asks for, and returns them with their common verdict. When it
// returns, cfg.Dir has everything, even if it fails. It fails with ErrConfig if cfg is invalid, with ErrWorkload or ErrEnvironment if
// a run was not possible, and with the cause of ctx's end.
func Run(ctx context.Context, cfg Config) (*Suite, error) {
	if err := isRegistered(cfg.Workload); err != nil {
		return nil, err
	}
	return run(ctx, cfg)
}

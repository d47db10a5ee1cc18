// Package chaos runs guarded code in real processes, injects the faults of machines and
// networks into them, and judges what happened.
//
// # Model
//
// A Workload is the code under test: it prepares data, operates on it, and checks it. A
// scenario is what goes wrong meanwhile: a schedule of faults that is made from a seed, or a
// script. A run combines the two. Its worker processes are this binary itself, executed
// again (Main, Reexec); each reaches etcd and Postgres over its own links, which can be cut.
// The workers write a history of what they did, and observers record it from outside; checks
// compare both, property by property.
//
// The same scenario runs with Fencekit and with controls: recipes that are
// known to break under these faults. A run in which a control survives is
// inconclusive.
//
//	func TestMain(m *testing.M) { chaos.Main(m, deductions{}) }
//
//	func TestChaos(t *testing.T) { chaos.Test(t, chaos.Config{Workload: deductions{}}) }
//
// README.md has a whole example, and examples/counter is it.
//
// # Verdicts
//
// A run passes if every property held and everything that the scenario requires happened. It
// is violated if a property was. It is inconclusive if it proves nothing: a fault found no
// victim, an observer had a gap. Inconclusive is not a pass.
//
// # What is not promised
//
// A seed determines operations and faults, not how the machine interleaves them: the same
// seed is the same schedule, not the same run. "No violation in n runs" is worth only as much
// as the damage that the same faults did to the controls. Power failures, disks that lie,
// clocks that jump, and several machines are beyond what one machine can test.
package chaos

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// ErrConfig: a Config is invalid, or the binary doesn't call this package as it must.
var ErrConfig = workload.ErrConfig

// ErrWorkload: a run was not possible because of the Workload: its Prepare failed, or its
// Operate can't run under a control.
var ErrWorkload = workload.ErrWorkload

// ErrEnvironment: a run was not possible because a server could not be started or a fault
// could not be reverted. It says nothing about the code under test.
var ErrEnvironment = run.ErrEnvironment

// Config says what to run. The zero value of each field means its default.
type Config struct {
	// Scenarios are names, families or patterns (path.Match) of scenarios, as
	// "fencectl chaos list" shows them. Default: all, but for those of the family patroni if
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
	// Dir gets the files of the runs. It is created, and must be empty unless Resume is set.
	// One suite at a time writes to it.
	Dir string
	// Resume adds to the runs that are in Dir, and doesn't repeat those.
	Resume bool
	// Parallel is how many runs go on at the same time, each on its own servers. Default 1.
	Parallel int
	// Workload is the code under test. Default: one that sells what is in stock.
	Workload Workload
	// Command is the command that repeats the suite; the report shows it.
	Command string
	// Progress is called when a run begins, and when it ends. Calls don't overlap. Default:
	// no calls.
	Progress func(Progress)
}

// Progress is how far a suite is.
type Progress struct {
	Run   Result // that begins or has ended
	Ended bool   // Run has ended, and its Verdict is known
	Done  int    // number of runs that have ended
	Total int    // number of runs in all; with a Duration those with the first seed, which are all done
}

// internal is the Config as package run takes it.
func (c Config) internal() (run.Config, error) {
	if err := isRegistered(c.Workload); err != nil {
		return run.Config{}, err
	}
	cfg := run.Config{
		Scenarios: c.Scenarios, Groups: c.Groups, Seed: c.Seed, Seeds: c.Seeds, Duration: c.Duration, ScriptSeeds: c.ScriptSeeds,
		Dir: c.Dir, Resume: c.Resume, Parallel: c.Parallel, Command: c.Command,
	}
	if c.Workload != nil {
		cfg.Workload = adapter{c.Workload}
	}
	if c.Progress != nil {
		cfg.Progress = func(p run.Progress) {
			c.Progress(Progress{Run: resultOf(p.Run), Ended: p.Ended, Done: p.Done, Total: p.Total})
		}
	}
	return cfg, nil
}

// Run does the runs that cfg asks for, and returns them with their common verdict. When it
// returns, cfg.Dir has everything, with a report to open in a browser (report.html), even if
// it fails. It fails with ErrConfig if cfg is invalid, with ErrWorkload or ErrEnvironment if
// a run was not possible, and with the cause of ctx's end.
func Run(ctx context.Context, cfg Config) (*Suite, error) {
	internal, err := cfg.internal()
	if err != nil {
		return nil, err
	}
	suite, err := run.Run(ctx, internal)
	return suiteOf(suite), err
}

// Verdict is the result of a run or of a suite.
type Verdict string

// The verdicts.
const (
	Pass         Verdict = Verdict(result.Pass)         // every property held, and what the scenario requires happened
	Violated     Verdict = Verdict(result.Violated)     // a property was violated
	Inconclusive Verdict = Verdict(result.Inconclusive) // nothing was violated, and nothing is proved
)

// Fenced is the group of runs under Fencekit. The others are controls.
const Fenced = result.Fenced

// Suite is several runs, and their common verdict. The files in Config.Dir have more.
type Suite struct {
	Verdict Verdict
	Reason  string // of the verdict, one sentence with figures
	Runs    []Result
}

// Result is one run of a scenario by one group.
type Result struct {
	Scenario string
	Group    string // Fenced, or the name of a control
	Seed     uint64
	Faults   bool          // false: the same without faults
	Took     time.Duration // 0 before it has ended
	Dir      string        // of its files, below that of the suite
	Verdict  Verdict       // empty before it has ended
	Reason   string        // of the verdict, one sentence
	Failed   string        // the error of the Workload's Check; empty if none
	Wrong    string        // what else was wrong with the code under test, for example that it hung; empty if nothing

	name string
}

// String names the run, as "pauses, redlock, seed 7, without faults".
func (r Result) String() string { return r.name }

func suiteOf(s *result.Suite) *Suite {
	if s == nil {
		return nil
	}
	public := &Suite{Verdict: Verdict(s.Verdict), Reason: s.Reason}
	for i := range s.Runs {
		public.Runs = append(public.Runs, resultOf(&s.Runs[i]))
	}
	return public
}

func resultOf(r *result.Run) Result {
	return Result{
		Scenario: r.Scenario, Group: r.Group, Seed: r.Seed, Faults: r.Faults, Took: r.Took, Dir: r.Dir,
		Verdict: Verdict(r.Verdict), Reason: r.Reason, Failed: r.Failed, Wrong: r.Wrong, name: r.String(),
	}
}

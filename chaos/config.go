package chaos

import (
	"time"

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

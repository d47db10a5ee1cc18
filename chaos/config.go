package chaos

import (
	"time"

	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// ErrConfig: a Config, or how the binary calls this package, is not as it has to
// be.
var ErrConfig = workload.ErrConfig

// ErrWorkload: a run could not take place because of the Workload: its Prepare
// failed, or its Operate can't run under a control.
var ErrWorkload = workload.ErrWorkload

// ErrEnvironment: a run could not take place, because a server could not be started
// or a fault could not be reverted. It says nothing about what is tested.
var ErrEnvironment = run.ErrEnvironment

// Config says what to run. The zero value of each field means its default.
type Config struct {
	// Scenarios are names, families or patterns (path.Match) of scenarios, as
	// "fencectl chaos list" shows them. Default: all.
	Scenarios []string
	// Groups are Fenced and names of controls, or patterns. Default: all; for Test
	// Fenced alone.
	Groups []string
	// Seed is the first seed, Seeds how many of them each scenario runs with. Default
	// 1 and 1.
	Seed  uint64
	Seeds int
	// Duration is for how long new runs are begun, instead of Seeds; those with the
	// first seed are all done, however long that takes. Default: as Seeds says.
	Duration time.Duration
	// ScriptSeeds is with how many of the seeds scripts and controls run. Scripts do
	// the same with every seed, but not at the same moments. Default 1.
	ScriptSeeds int
	// Dir gets the files of the runs; it is made, and must be empty unless Resume is
	// set. One suite at a time writes to it.
	Dir string
	// Resume adds to the runs that are in Dir, and doesn't repeat those.
	Resume bool
	// Lanes is how many runs go on at a time, each on servers of its own. Default 1.
	Lanes int
	// Workload is the code under test. Default: one that sells what is in stock.
	Workload Workload
	// Command is how the suite would be run again, for its report.
	Command string
	// Progress is called when a run begins, and when it has ended. Calls don't
	// overlap. Default: no calls.
	Progress func(Progress)
}

// Progress is what became of the runs so far.
type Progress struct {
	Run   Result // that has begun or ended
	Ended bool   // it has ended; its Verdict is known
	Done  int    // runs that have ended
	Total int    // runs that there will be; 0 if a Duration decides
}

// internal is the Config as package run takes it.
func (c Config) internal() (run.Config, error) {
	if err := isRegistered(c.Workload); err != nil {
		return run.Config{}, err
	}
	cfg := run.Config{
		Scenarios: c.Scenarios, Groups: c.Groups, Seed: c.Seed, Seeds: c.Seeds, Duration: c.Duration, ScriptSeeds: c.ScriptSeeds,
		Dir: c.Dir, Resume: c.Resume, Lanes: c.Lanes, Command: c.Command,
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

package chaos

import (
	"time"

	"github.com/fencekit/fencekit/chaos/internal/result"
)

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

package chaos

import "github.com/fencekit/fencekit/chaos/internal/result"

// Suite is what Run has done, and what that shows.
type Suite = result.Suite

// Verdict is what a run or a suite comes to.
type Verdict = result.Verdict

// The verdicts.
const (
	Pass         = result.Pass
	Violated     = result.Violated
	Inconclusive = result.Inconclusive
)

// Fenced is the group of runs under the framework. The others are controls.
const Fenced = result.Fenced

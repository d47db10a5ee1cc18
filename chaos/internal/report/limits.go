package report

import (
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/result"
)

// leastRuns is the least number of runs that bounds a share below 100%.
const leastRuns = 4

// limitsOf says what the suite's runs don't prove, with figures where there are any.
func limitsOf(fenced result.Totals, controls []control) []string {
	limits := []string{
		"No number of runs is a proof. The claim is: no violation in so many runs, with faults that broke the controls as often as the table shows.",
	}
	if fenced.Runs >= leastRuns && fenced.Violated == 0 {
		limits = append(limits, fmt.Sprintf("%s without a violation bound the share of runs that violate something: with 95%% confidence it is at most %.2g%%, and only for schedules like these.",
			count(fenced.Runs, "run", "runs"), 300/float64(fenced.Runs)))
	}
	if w := weakest(controls); w != nil && fenced.Runs >= leastRuns {
		limits = append(limits, fmt.Sprintf("The control that these faults break least is %s: %s of its runs. A bug of Fencekit that shows as rarely would have been found in %s with a probability of %s; one that shows more rarely may still be there.",
			w.Title, percent(w.Faults.Rate()), count(fenced.Runs, "run", "runs"), percent(power(w.Faults.Rate(), fenced.Runs))))
	}
	return append(limits,
		"A seed determines operations and faults, not how the machine interleaves them: the same seed is the same schedule, not the same run.",
		"All processes ran on one machine with one clock. Power failures, disks that lie, clocks that jump and real networks are not among the faults.",
		"The fence guards writes to its own database. What an operation does elsewhere (mails, payments, files) can still happen twice.",
		"A fence does not restore what the database itself lost, for example in an asynchronous failover, and does not stop a superuser.",
		"Before the next holder has claimed, the old one may still write: the next one reads only after its claim.",
	)
}

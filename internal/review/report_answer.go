package review

import (
	"fmt"
	"time"
)

// conclude comes to the verdict, and says it in a sentence or two.
func (report *Report) conclude() {
	report.Verdict = VerdictClean
	span := "from " + minutes(report.From) + " to " + minutes(report.To) + " UTC"
	switch c := report.Counts; {
	case report.Verified.Violations > 0:
		report.Verdict = VerdictViolated
		report.Answer = fmt.Sprintf("The record can't be relied on: its verification has %s. They have to be explained before anything is concluded about the time %s, in which it shows %s.",
			counted(report.Verified.Violations, "finding"), span, report.done())
	case report.Verified.Resources == 0:
		report.Verdict = VerdictIncomplete
		report.Answer = fmt.Sprintf("No resource matches %q, so there is nothing to report.", report.Resources)
	case c.Pruned > 0:
		report.Verdict = VerdictIncomplete
		report.Answer = fmt.Sprintf("The record is incomplete for the time %s: entries of %s that may belong to it were pruned. The remaining entries verify; they show %s.",
			span, counted(c.Pruned, "resource"), report.done())
	default:
		report.Answer = fmt.Sprintf("No: nothing was written by a holder that no longer held the lock, %s. The record shows %s.", span, report.done())
	}
}

// done says what the period has, in figures.
func (report *Report) done() string {
	c := report.Counts
	text := "that nothing was written"
	if c.Writes > 0 {
		text = fmt.Sprintf("%s for %s, each under the grant that had the resource then", counted(c.Writes, "write"), counted(c.ResourcesWritten, "resource"))
		if report.Verdict == VerdictViolated {
			text = fmt.Sprintf("%s for %s", counted(c.Writes, "write"), counted(c.ResourcesWritten, "resource"))
		}
	}
	switch {
	case c.AttemptsMax == 0:
		return text + ", and no attempt was rejected"
	case c.AttemptsMin == c.AttemptsMax:
		return text + fmt.Sprintf("; %s %s rejected and took no effect", counted(c.AttemptsMax, "attempt"), wasWere(c.AttemptsMax))
	}
	return text + fmt.Sprintf("; between %d and %s were rejected and took no effect", c.AttemptsMin, counted(c.AttemptsMax, "attempt"))
}

// minutes writes a time without its seconds, if there are none.
func minutes(at time.Time) string {
	if at.Equal(at.Truncate(time.Minute)) {
		return at.Format("2006-01-02 15:04")
	}
	return clock(at)
}

func wasWere(n int64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// counted writes a number with what it counts.
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// facts say what was checked, and what the answer rests on.
func (report *Report) facts() []Fact {
	v := report.Verified
	facts := []Fact{
		{"Checked", fmt.Sprintf("The whole history of these resources as it was at %s: %s of %s, %s of rejections. "+
			"No entry was changed, removed, inserted or moved since it was written, unless all later entries were rewritten with it; each write names the claim that had its resource at that position; "+
			"tokens never decrease; and each rejection has the claim that justifies it.",
			clock(v.At), entries(v.Entries), counted(v.Resources, "resource"), counted(v.Rejections, "record"))},
		{"Rests on", "This database alone, and the assumption that all writes to the data were guarded: other writes leave no entry. The owner of the tables could rewrite the history so that it verifies; anchors outside the database reveal that."},
		{"Not shown", "Which writes had an unknown outcome at first: a COMMIT that was later found to have taken effect is listed as a write, one that was ruled out as a void. Rejections that could not be recorded because the database was unreachable. When a lock was released: a holder counts as holding the resource until the next claim, even if it released the lock earlier."},
	}
	if v.Violations > 0 {
		facts[0].Text = fmt.Sprintf("The whole history of these resources as it was at %s: %s of %s. It doesn't verify; the findings are below.", clock(v.At), entries(v.Entries), counted(v.Resources, "resource"))
	}
	if n := v.Pruned.Rejections; n > 0 {
		facts[0].Text += fmt.Sprintf(" Of %s what would justify it was pruned.", counted(n, "rejection"))
	}
	return facts
}

func entries(n int64) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

package review

import "fmt"

// conclude comes to the verdict, and says it in a sentence or two.
func (report *Report) conclude() {
	switch c := report.Counts; {
	case report.Verified.TotalFindings > 0:
		report.Verdict = VerdictViolated
		report.Answer = fmt.Sprintf("The record can't be relied on: its verification has %s.", counted(report.Verified.TotalFindings, "finding"))
		if report.begun() {
			report.Answer += fmt.Sprintf(" Until that is explained, nothing can be concluded from what it shows of the time %s: %s.", report.span(), report.done())
		}
	case c.Unguarded > 0:
		report.Verdict = VerdictUnguarded
		report.Answer = fmt.Sprintf("Yes: %s %s made without a guard, %s, to protected tables: %s. Beside %s the record shows %s.", counted(c.Unguarded, "write"), wasWere(c.Unguarded),
			report.span(), report.tables(), itThem(c.Unguarded), report.done())
		if c.Pruned > 0 {
			report.Answer += fmt.Sprintf(" Entries of %s were pruned that may belong to that time.", counted(c.Pruned, "resource"))
		}
	case report.unknown():
		report.incomplete(fmt.Sprintf("no resource matches %q", report.Resources),
			fmt.Sprintf("No resource matches %q, so there is nothing to report.", report.Resources))
	case !report.begun():
		report.incomplete("the period had not begun",
			fmt.Sprintf("The time from %s to %s UTC had not begun at %s UTC, when this was asked.", minutes(report.From), minutes(report.To), clock(report.Until)))
	case c.Pruned > 0:
		report.incomplete("entries of the period may have been pruned",
			fmt.Sprintf("The record is incomplete: entries of %s were pruned that may belong to the time %s. The remaining entries verify; they show %s.",
				counted(c.Pruned, "resource"), report.span(), report.done()))
	case report.lacksAll():
		report.incomplete("the record begins after the period",
			fmt.Sprintf("The record of these resources begins at %s UTC; it says nothing of the time %s.", minutes(*report.Begins), report.span()))
	default:
		report.answerNo()
	}
}

// unknown reports whether there is no record of any resource that matches.
func (report *Report) unknown() bool {
	return report.Verified.Resources == 0 && report.Verified.Rejections == 0 && report.Verified.TotalFindings == 0
}

// incomplete concludes that there is no answer.
func (report *Report) incomplete(lacks, answer string) {
	report.Verdict, report.lacks, report.Answer = VerdictIncomplete, lacks, answer
}

// Lacks says in a few words why a report is incomplete, "" if it isn't.
func (report *Report) Lacks() string { return report.lacks }

// answerNo concludes that no holder wrote without the lock, and limits that to what the record covers.
func (report *Report) answerNo() {
	report.Verdict = VerdictClean
	rest, before := "", ""
	if !report.ended() {
		report.Verdict = VerdictSoFar
		rest = "; the rest of the time until " + minutes(report.To) + " had not passed"
	}
	if report.lacksBeginning() {
		before = fmt.Sprintf(" The record of these resources begins at %s UTC; it says nothing of the time before.", minutes(*report.Begins))
	}
	if n := int64(len(report.Unprotected)); n > 0 {
		before += fmt.Sprintf(" A write without a guard may have left no trace in %s.", counted(n, "table"))
	}
	report.Answer = fmt.Sprintf("No: nothing was written by a holder that no longer held the lock, %s%s. The record shows %s.%s", report.span(), rest, report.done(), before)
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
		return text + ", and no rejection"
	case c.AttemptsMin == c.AttemptsMax:
		return text + fmt.Sprintf("; %s %s rejected and took no effect", counted(c.AttemptsMax, "attempt"), wasWere(c.AttemptsMax))
	}
	return text + fmt.Sprintf("; between %d and %s were rejected and took no effect", c.AttemptsMin, counted(c.AttemptsMax, "attempt"))
}

func wasWere(n int64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func itThem(n int64) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// counted writes a number with what it counts.
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// facts say what was checked, and what the answer rests on; nothing about resources of which there
// is no record.
func (report *Report) facts() []Fact {
	if report.unknown() {
		return nil
	}
	v := report.Verified
	facts := []Fact{
		{"Checked", fmt.Sprintf("The whole history of these resources as it was at %s: %s of %s. "+
			"No entry was changed, removed, inserted or moved since it was written, unless all later entries were rewritten with it; each write names the claim that had its resource at that position; "+
			"and tokens never decrease within an epoch.",
			clock(v.At), entries(v.Entries), counted(v.Resources, "resource"))},
		{"Rests on", "This database alone, and the assumption that all writes to the data were guarded: others leave no entry. " + report.traces() + "The owner of the tables could rewrite the history so that it verifies; anchors outside the database reveal that. Rejections are shown as they were recorded: no hash covers them, and one that an application made up can't be told from a real one."},
		{"Not shown", "Which writes had an unknown outcome at first: a COMMIT that was later found to have taken effect is listed as a write, one that was ruled out as a void. Rejections that could not be recorded because the database was unreachable, or whose records were pruned since. Writes without a guard whose records were removed since. When a lock was released, which may have been at any time after the holder's last write. Who had the resources without an entry in this time. What was being committed when this was asked."},
	}
	if v.TotalFindings > 0 {
		facts[0].Text = fmt.Sprintf("The whole history of these resources as it was at %s: %s of %s. It doesn't verify; the findings are below.", clock(v.At), entries(v.Entries), counted(v.Resources, "resource"))
	}
	if n := v.TotalUnexplained; n > 0 {
		facts[1].Text += fmt.Sprintf(" %s names a claim that isn't in the history: it was pruned, or lost in a failover or a restore, or the record was made up.", counted(n, "record"))
	}
	return facts
}

// traces says where writes without a guard leave traces.
func (report *Report) traces() string {
	if len(report.Unprotected) == 0 {
		return "All tables were protected in this time: writes without a guard were rejected or recorded there. "
	}
	return "They were rejected or recorded in protected tables; these were not protected, or not all the time: " +
		listing(report.Unprotected, func(name string) string { return name }) + ". "
}

func entries(n int64) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

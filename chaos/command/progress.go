package command

import (
	"fmt"
	"io"
	"os"
	"time"

	bar "github.com/jedib0t/go-pretty/v6/progress"

	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/internal/cli"
)

// With these lengths a line, which ends as "[10m30s]", fits into 80 columns: the bar is
// drawn over itself only while it has one line.
const (
	messageLength = 50
	trackerLength = 12
)

// progress shows the progress of "chaos run": what is going to be done, and a line for each run
// that has ended or, on a terminal, a bar and a line for each run of Fencekit that did not
// pass. Its methods must not be called concurrently.
type progress struct {
	w       io.Writer
	config  *run.Config
	begun   bool
	bars    bar.Writer // nil: lines
	tracker *bar.Tracker
	over    chan struct{} // closed when the bar is no longer drawn
}

func newProgress(w io.Writer, config *run.Config) *progress {
	p := &progress{w: w, config: config}
	if !cli.IsTerminal(w) || os.Getenv("TERM") == "dumb" {
		return p
	}
	p.bars = bar.NewWriter()
	p.bars.SetOutputWriter(w)
	p.bars.SetTerminalWidth(cli.TerminalWidth(w))
	p.bars.SetUpdateFrequency(200 * time.Millisecond)
	p.bars.SetStyle(bar.StyleBlocks)
	p.bars.Style().Visibility.Value, p.bars.Style().Visibility.Percentage = false, false // they are part of the message
	p.bars.Style().Options.TimeInProgressPrecision = time.Second
	p.bars.SetMessageLength(messageLength)
	p.bars.SetTrackerLength(trackerLength)
	p.tracker = &bar.Tracker{Message: "starting servers"}
	p.bars.AppendTracker(p.tracker)
	p.over = make(chan struct{})
	go func() {
		defer close(p.over)
		p.bars.Render()
	}()
	return p
}

// update shows what Run reports.
func (p *progress) update(now run.Progress) {
	if !p.begun {
		p.begun = true
		p.line(plan(p.config, now.Total-now.Done))
	}
	if p.bars == nil {
		if now.Ended {
			p.line(runLine(now))
		}
		return
	}
	p.tracker.UpdateTotal(int64(max(now.Total, now.Done)))
	p.tracker.UpdateMessage("run " + doneOf(now) + ": " + now.Run.String())
	p.tracker.SetValue(int64(now.Done))
	if now.Ended && now.Run.Group == result.Fenced && now.Run.Verdict != result.Pass {
		p.line(runLine(now))
	}
}

// line shows a line, above the bar if there is one.
func (p *progress) line(text string) {
	if p.bars != nil {
		p.bars.Log("%s", text)
		return
	}
	fmt.Fprintln(p.w, text)
}

// plan says what so many runs that are left will take.
func plan(c *run.Config, left int) string {
	parallel := max(c.Parallel, 1)
	about := (time.Duration((left+parallel-1)/parallel) * run.UsualRun).Round(time.Second)
	text := fmt.Sprintf("%d runs of about %v, %d at a time: about %v.", left, run.UsualRun, parallel, about)
	if c.Duration > 0 {
		text += fmt.Sprintf(" These have the first seed and are all done, however long that takes; others begin until %v have passed.", c.Duration)
	}
	return text
}

// close removes the bar.
func (p *progress) close() {
	if p.bars == nil {
		return
	}
	p.tracker.MarkAsDone()
	p.bars.Stop()
	<-p.over
}

// runLine is a run that has ended, as "run 3 of 12: pass: pauses, fenced, seed 1 (9.8s)".
// A run that is not as it must be has its reason.
func runLine(now run.Progress) string {
	r := now.Run
	line := fmt.Sprintf("run %s: %s: %s (%v)", doneOf(now), verdictWord(r), r, r.Took.Round(100*time.Millisecond))
	if r.Verdict == result.Inconclusive || r.Verdict == result.Violated && !r.Red() {
		line += ": " + r.Reason
	}
	return line
}

// doneOf is how many runs have ended, as "3 of 12", or "13" once a Duration alone decides.
func doneOf(now run.Progress) string {
	if now.Done > now.Total {
		return fmt.Sprint(now.Done)
	}
	return fmt.Sprintf("%d of %d", now.Done, now.Total)
}

// verdictWord calls controls red and green, and says what that means.
func verdictWord(r *result.Run) string {
	switch {
	case r.Group != result.Fenced && r.Red():
		return "red (broke, as a control must)"
	case r.Group != result.Fenced && r.Verdict == result.Pass && r.Faults:
		return "green (did not break)"
	case r.Group != result.Fenced && r.Verdict == result.Pass:
		return "green (held, as it must without faults)"
	}
	return string(r.Verdict)
}

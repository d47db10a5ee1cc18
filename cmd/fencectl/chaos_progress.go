package main

import (
	"fmt"
	"io"
	"os"
	"time"

	bar "github.com/jedib0t/go-pretty/v6/progress"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/chaos/result"
)

// progress shows what "chaos run" does: a line for each run that has ended or, on
// a terminal, a bar and a line for each run that is worth reading. Its methods must
// not be called concurrently.
type progress struct {
	w       io.Writer
	bars    bar.Writer // nil: lines
	tracker *bar.Tracker
	over    chan struct{} // closed when the bar is drawn no more
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if !isTerminal(w) || os.Getenv("TERM") == "dumb" {
		return p
	}
	p.bars = bar.NewWriter()
	p.bars.SetOutputWriter(w)
	p.bars.SetUpdateFrequency(200 * time.Millisecond)
	p.bars.SetStyle(bar.StyleBlocks)
	p.bars.Style().Visibility.Value = true
	p.tracker = &bar.Tracker{Message: "starting servers"}
	p.bars.AppendTracker(p.tracker)
	p.over = make(chan struct{})
	go func() {
		defer close(p.over)
		p.bars.Render()
	}()
	return p
}

// tell takes what Run says.
func (p *progress) tell(now chaos.Progress) {
	if p.bars == nil {
		if now.Ended {
			fmt.Fprintln(p.w, runLine(now))
		}
		return
	}
	p.tracker.UpdateTotal(int64(now.Total))
	p.tracker.UpdateMessage(now.Run.String())
	p.tracker.SetValue(int64(now.Done))
	if now.Ended && now.Run.Group == result.Fenced && now.Run.Verdict != result.Pass {
		p.bars.Log("%s", runLine(now))
	}
}

// close takes the bar away.
func (p *progress) close() {
	if p.bars == nil {
		return
	}
	p.tracker.MarkAsDone()
	p.bars.Stop()
	<-p.over
}

// runLine is a run that has ended, as "[3/12] pass: pauses, fenced, seed 1 (9.8s)".
// What is not as it must be has its reason.
func runLine(now chaos.Progress) string {
	done := fmt.Sprint(now.Done)
	if now.Total > 0 {
		done += fmt.Sprintf("/%d", now.Total)
	}
	r := now.Run
	line := fmt.Sprintf("[%s] %s: %s (%v)", done, verdictWord(r), r, r.Took.Round(100*time.Millisecond))
	if r.Verdict == result.Inconclusive || r.Verdict == result.Violated && !r.Red() {
		line += ": " + r.Reason
	}
	return line
}

// verdictWord calls controls red and green: a red one is as it must be.
func verdictWord(r *result.Run) string {
	switch {
	case r.Group != result.Fenced && r.Red():
		return "red"
	case r.Group != result.Fenced && r.Verdict == result.Pass:
		return "green"
	}
	return string(r.Verdict)
}

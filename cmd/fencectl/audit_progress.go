package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/fencekit/fencekit/internal/cli"
)

// entryProgress shows how many entries are done: a bar on a terminal, else a line for each
// tenth of them.
type entryProgress struct {
	w       io.Writer
	bar     progress.Writer // nil: lines
	tracker *progress.Tracker
	over    chan struct{} // closed when the bar is no longer drawn
	next    int64         // the number of entries at which the next line is due
}

// linesAtLeast is how many entries are between two lines if their number isn't known.
const linesAtLeast = 1_000_000

func newEntryProgress(w io.Writer) *entryProgress {
	p := &entryProgress{w: w}
	if !cli.IsTerminal(w) || os.Getenv("TERM") == "dumb" {
		return p
	}
	p.bar = progress.NewWriter()
	p.bar.SetOutputWriter(w)
	p.bar.SetTerminalWidth(cli.TerminalWidth(w))
	p.bar.SetUpdateFrequency(200 * time.Millisecond)
	p.bar.SetStyle(progress.StyleBlocks)
	p.bar.Style().Options.TimeInProgressPrecision = time.Second
	p.tracker = &progress.Tracker{Message: "entries"}
	p.bar.AppendTracker(p.tracker)
	p.over = make(chan struct{})
	go func() {
		defer close(p.over)
		p.bar.Render()
	}()
	return p
}

// update is not called concurrently.
func (p *entryProgress) update(done, all int64) {
	if p.bar != nil {
		p.tracker.UpdateTotal(all)
		p.tracker.SetValue(done)
		return
	}
	if p.next == 0 {
		p.next = max(all/10, linesAtLeast)
	}
	if done < p.next {
		return
	}
	p.next = done + max(all/10, linesAtLeast)
	if all > 0 {
		fmt.Fprintf(p.w, "%d of about %s\n", done, cli.Counted(all, "entry"))
	} else {
		fmt.Fprintln(p.w, cli.Counted(done, "entry"))
	}
}

// close removes the bar.
func (p *entryProgress) close() {
	if p.bar != nil {
		p.tracker.MarkAsDone()
		p.bar.Stop()
		<-p.over
	}
}

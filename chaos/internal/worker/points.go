package worker

import (
	"fmt"
	"os"
	"regexp"
	"sync"
	"syscall"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/internal/pause"
)

// PointAwait is the name of the points that Await counts.
const PointAwait = "await"

// points are where operations of this process can be made to stop. One at a time
// is armed, for its next passer.
type points struct {
	tell func(history.Event)

	mu    sync.Mutex
	armed string
	then  fault.Then
	skip  int // of awaits
}

// arm has the next one who reaches the point do as told; of awaits the one after
// so many others. It replaces what was armed before.
func (p *points) arm(name string, skip int, then fault.Then) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.skip, p.then = name, skip, then
}

// disarm takes arm back, and reports whether nobody had passed yet.
func (p *points) disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.armed != ""
	p.armed = ""
	return was
}

// reach is called at a named point.
func (p *points) reach(name string) {
	p.mu.Lock()
	if p.armed != name {
		p.mu.Unlock()
		return
	}
	p.strike(name)
}

// await is called whenever an operation has sent something over the network or got
// something: at these points a process spends its time, and its locks run out.
func (p *points) await(what string) {
	p.mu.Lock()
	if p.armed != PointAwait {
		p.mu.Unlock()
		return
	}
	if p.skip > 0 {
		p.skip--
		p.mu.Unlock()
		return
	}
	p.strike(PointAwait + ": " + what)
}

// strike does what was armed, with p.mu locked: what is told before the process
// stops has been told. It unlocks p.mu.
func (p *points) strike(name string) {
	p.armed = ""
	then := p.then
	p.mu.Unlock()
	p.tell(history.Event{Kind: history.Reached, Point: name, Name: string(then)})
	stop := pause.Self
	if then == fault.ThenDie {
		stop = die
	}
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos: stopping at", name, "failed:", err)
		os.Exit(exitWorker)
	}
}

// die ends this process as SIGKILL does: nothing after it runs.
func die() error {
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGKILL); err != nil {
		return err
	}
	select {} // the signal is on its way
}

// commit is the word in what is sent to Postgres, not as a part of a setting's name.
var commit = regexp.MustCompile(`(?i)(^|[^_a-z])commit($|[^_a-z])`)

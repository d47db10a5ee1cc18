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

// PointAwait is the name of all points at which an operation waits for the network.
const PointAwait = "await"

// points are where operations of this process can be made to stop. One at a time is armed;
// the next operation that reaches it triggers it.
type points struct {
	record func(history.Event)

	mu    sync.Mutex
	armed string
	then  fault.Then
	skip  int // of awaits
}

// arm has the process stop or die when an operation next reaches the point; of awaits skip
// are skipped. It replaces what was armed before.
func (p *points) arm(name string, skip int, then fault.Then) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.skip, p.then = name, skip, then
}

// disarm undoes arm, and reports whether the point had not been reached.
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
	p.trigger(name)
}

// await is called whenever an operation has sent something over the network or received
// something: while a process waits there, its locks may expire.
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
	p.trigger(PointAwait + ": " + what)
}

// trigger does what was armed. It is called with p.mu locked and unlocks it. The event is
// recorded before the process stops.
func (p *points) trigger(name string) {
	p.armed = ""
	then := p.then
	p.mu.Unlock()
	p.record(history.Event{Kind: history.Reached, Point: name, Name: string(then)})
	stop := pause.Self
	if then == fault.ThenKill {
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

// commit matches the word in what is sent to Postgres, but not in a setting's name.
var commit = regexp.MustCompile(`(?i)(^|[^_a-z])commit($|[^_a-z])`)

package guardtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// schedule lets one of several processes go on at a time, and only from one step to its next. Which one is that of the
// highest priority that can; it loses that at random steps, at which it may also lose more (Burckhardt and others, A
// Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, 2010).
type schedule struct {
	service *LockService
	rand    *rand.Rand
	changed chan struct{}
	running sync.WaitGroup

	mu        sync.Mutex
	processes []*simulated // the highest priority first
	callbacks []callback
	trace     []string
}

type simulated struct {
	schedule *schedule
	locker   *Locker
	end      context.CancelCauseFunc
	silent   bool // its next question for an outcome has no answer
	*sessions

	// Guarded by schedule.mu.
	running bool // or waits within the database
	steps   []*step
	over    bool // nothing waits any more
	killed  bool
	err     error // what Run returned, or errKilled
	broken  error // what is wrong with how it ended
}

// sessions are a process's with a database. The next run goes on with them, since new ones take longer than a run. The
// zero value is for a store that has none.
type sessions struct {
	process *simulated                 // that uses them
	waits   func(context.Context) bool // whether one waits for what only an idle one can give
	kill    func(context.Context)
	close   func()
}

// step is where a process waits for its turn.
type step struct {
	name  string
	ready func() bool // or nil
	ends  bool        // a transaction that writes
	fate  fate
	turn  chan struct{}
}

// fate is that of a COMMIT, as a trace says it.
type fate string

const (
	arrives     fate = ""
	requestLost fate = ", which is lost"
	answerLost  fate = ", whose answer is lost"
)

var (
	errKilled  = fmt.Errorf("guardtest: the process was killed: %w", guard.ErrUnknownOutcome)
	errLeftRun = errors.New("guardtest: Run ended its goroutine, as t.FailNow does")
)

type callback struct {
	when context.Context
	f    func()
}

// after is context.AfterFunc, but in a simulation f runs between two steps.
func (p *simulated) after(ctx context.Context, f func()) (stop func() bool) {
	if p == nil {
		return context.AfterFunc(ctx, f)
	}
	p.schedule.mu.Lock()
	defer p.schedule.mu.Unlock()
	p.schedule.callbacks = append(p.schedule.callbacks, callback{ctx, f})
	return func() bool { return false }
}

func (c *schedule) callBack() (called bool) {
	c.mu.Lock()
	i := slices.IndexFunc(c.callbacks, func(b callback) bool { return b.when.Err() != nil })
	if i < 0 {
		c.mu.Unlock()
		return false
	}
	f := c.callbacks[i].f
	c.callbacks = slices.Delete(c.callbacks, i, i+1)
	c.mu.Unlock()
	f()
	return true
}

// await returns an error once the process is killed.
func (p *simulated) await(name string) error { return p.awaitStep(&step{name: name}) }

func (p *simulated) awaitLock(ctx context.Context, resource string, e *lease) error {
	ready := func() bool {
		select {
		case <-e.granted:
			return true
		default:
			return e.Err() != nil || ctx.Err() != nil
		}
	}
	if p == nil || ready() {
		return nil
	}
	return p.awaitStep(&step{name: "gets the lock of " + resource, ready: ready})
}

func (p *simulated) awaitStep(s *step) error {
	if p == nil {
		return nil
	}
	s.turn = make(chan struct{})
	p.schedule.mu.Lock()
	wait := !p.over
	if wait {
		p.running = false
		p.steps = append(p.steps, s)
	}
	p.schedule.mu.Unlock()
	if wait {
		p.schedule.wake()
		<-s.turn
	}
	p.schedule.mu.Lock()
	defer p.schedule.mu.Unlock()
	if p.killed {
		return errKilled
	}
	return nil
}

func (c *schedule) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// start returns when f has come to its first step.
func (c *schedule) start(ctx context.Context, p *simulated, f func() (err, broken error)) {
	p.schedule, p.running, p.err = c, true, errKilled
	c.processes = append(c.processes, p)
	c.running.Go(func() {
		err, broken := errLeftRun, errLeftRun
		defer func() {
			c.mu.Lock()
			defer c.wake()
			defer c.mu.Unlock()
			if p.running, p.steps = false, nil; !p.over {
				p.err, p.broken, p.over = err, broken, true
				c.trace = append(c.trace, p.locker.label+"  returns "+outcome(err))
			}
		}()
		err, broken = f()
	})
	c.settle(ctx)
}

// outcome has no tokens and times, which are others in each run.
func outcome(err error) string {
	if err == nil {
		return "nil"
	}
	for _, known := range []error{guard.ErrUnknownOutcome, guard.ErrStaleToken, guard.ErrOvertaken, guard.ErrTxEnded, fence.ErrLeaseLost} {
		if errors.Is(err, known) {
			return "an error: " + known.Error()
		}
	}
	return "an error: " + err.Error()
}

func (p *simulated) note(what string) {
	p.schedule.mu.Lock()
	defer p.schedule.mu.Unlock()
	p.schedule.trace = append(p.schedule.trace, p.locker.label+"  "+what)
}

// play lets the processes go on until each has returned or is killed.
func (c *schedule) play(ctx context.Context) error {
	c.rand.Shuffle(len(c.processes), func(i, j int) { c.processes[i], c.processes[j] = c.processes[j], c.processes[i] })
	for {
		c.settle(ctx)
		p, s := c.next()
		switch {
		case p == nil:
			return c.stuck()
		case !c.disturb(ctx, p):
			c.goOn(p, s)
		}
	}
}

// lookEvery is how long a process may take from step to step before the database is asked whether it waits there.
const lookEvery = time.Millisecond

// settle returns when each process waits for its turn, or in the database for one that does.
func (c *schedule) settle(ctx context.Context) {
	for {
		active := c.active()
		if len(active) == 0 {
			if c.callBack() {
				continue
			}
			return
		}
		var look <-chan time.Time
		if active[0].waits != nil {
			look = time.After(lookEvery)
		}
		select {
		case <-c.changed:
			continue
		case <-look:
		}
		goes := slices.ContainsFunc(active, func(p *simulated) bool { return !p.waits(ctx) })
		if p, _ := c.next(); !goes && p != nil && !c.callBack() {
			return
		}
	}
}

func (c *schedule) active() (active []*simulated) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		if p.running {
			active = append(active, p)
		}
	}
	return active
}

func (c *schedule) next() (*simulated, *step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		for _, s := range p.steps {
			if !p.running && !p.killed && (s.ready == nil || s.ready()) {
				return p, s
			}
		}
	}
	return nil, nil
}

func (c *schedule) stuck() error {
	var waiting []string
	for _, p := range c.processes {
		if p.broken != nil {
			return fmt.Errorf("%s: %w", p.locker.label, p.broken)
		}
		if !p.over && !p.killed {
			waiting = append(waiting, p.locker.label)
		}
	}
	if len(waiting) > 0 {
		return fmt.Errorf("no process can go on: each of %s waits for the lock of another one; name all resources in one call, or take them in one order", strings.Join(waiting, ", "))
	}
	return nil
}

// disturb has p wait behind all others at one step of six.
func (c *schedule) disturb(ctx context.Context, p *simulated) bool {
	n := c.rand.IntN(30)
	if n > 4 {
		return false
	}
	i := slices.Index(c.processes, p)
	c.processes = append(slices.Delete(c.processes, i, i+1), p)
	switch {
	case n == 2 || n == 3:
		if lost := strings.Join(c.service.expire(p.locker, n == 2), ", "); lost != "" {
			p.note("loses its lease of " + lost + []string{", and notices", ", and doesn't notice"}[n-2])
		}
	case n == 4 && !slices.ContainsFunc(c.processes, func(other *simulated) bool { return other.killed }):
		p.note("is killed")
		if p.kill != nil {
			p.kill(ctx)
		}
		c.mu.Lock()
		p.killed = true
		c.mu.Unlock()
		c.service.expire(p.locker, false)
	}
	return true
}

func (c *schedule) goOn(p *simulated, s *step) {
	if s.ends {
		s.fate = []fate{requestLost, answerLost, 7: arrives}[c.rand.IntN(8)]
	}
	if s.name != "" {
		p.note(s.name + string(s.fate))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.running = true
	p.steps = slices.DeleteFunc(p.steps, func(other *step) bool { return other == s })
	close(s.turn)
}

// close lets killed processes, and after a failure all, come to an end: nothing of theirs takes effect.
func (c *schedule) close() {
	for _, p := range c.processes {
		c.mu.Lock()
		if !p.over {
			p.killed, p.over = true, true
			p.end(errKilled)
			for _, s := range p.steps {
				close(s.turn)
			}
		}
		c.mu.Unlock()
	}
	c.running.Wait()
}

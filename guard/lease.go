package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage"
)

// held is what a call has of its resources: turns, in the order of their names, and leases. A call waits, for a
// turn or another process's lock, only for a name greater than all that it has. Every process does so, and calls
// never wait in a circle. Idle leases block nobody, since they are released as soon as another process waits.
type held struct {
	lines     *lines
	resources []string
	atOnce    bool

	turns  []*line
	states grantStates
	turn   [1]*line
	state  [1]*grantState
}

// takeTurns takes the missing turns alone. It returns errTaken if another call has taken offer meanwhile.
func (h *held) takeTurns(ctx context.Context, offer any) error {
	for len(h.turns) < len(h.resources) {
		if err := h.takeTurn(ctx, offer); err != nil {
			return err
		}
	}
	return nil
}

func (h *held) takeTurn(ctx context.Context, offer any) error {
	if h.turns == nil {
		h.turns = h.turn[:0]
	}
	l, err := h.lines.takeTurn(ctx, h.resources[len(h.turns)], offer)
	if err != nil {
		return err
	}
	if l == nil {
		return errTaken
	}
	h.turns = append(h.turns, l)
	return nil
}

// take takes the missing turns and sets states to usable leases. Before it acquires one anew, it passes on the
// turns at later resources. It returns errTaken if another call has taken offer meanwhile.
func (h *held) take(ctx context.Context, offer any) error {
	h.states = nil
	states := grantStates(h.state[:0])
	for i := range h.resources {
		if i == len(h.turns) {
			if err := h.takeTurn(ctx, offer); err != nil {
				return err
			}
			if l := h.turns[i]; l.lease == nil && len(h.resources) > i+1 {
				if err := h.takeFree(ctx); err != nil {
					return err
				}
			}
		}
		l := h.turns[i]
		if !h.lines.usable(l.lease) {
			h.passOn(ctx, i+1)
			if l.lease != nil {
				h.lines.release(ctx, l)
			}
			if err := h.lines.acquire(ctx, l); err != nil {
				return err
			}
		}
		l.lease.atOnce = h.atOnce
		states = append(states, l.lease)
	}
	h.states = states
	return nil
}

var errTaken = errors.New("guard: another call has done it")

// takeFree takes turns and leases, in one step, from the last turn on up to the first resource that isn't free.
func (h *held) takeFree(ctx context.Context) error {
	missing := slices.Clone(h.turns[len(h.turns)-1:])
	for _, resource := range h.resources[len(h.turns):] {
		l := h.lines.tryTurn(resource)
		if l == nil {
			break
		}
		h.turns = append(h.turns, l)
		if l.lease == nil {
			missing = append(missing, l)
		} else if !h.lines.usable(l.lease) {
			break
		}
	}
	if len(missing) == 1 {
		return nil
	}
	return h.lines.acquire(ctx, missing...)
}

// passOn passes on the turns from number n on. If their leases aren't kept it does so all at once, since a lock
// service can release them in one step.
func (h *held) passOn(ctx context.Context, n int) {
	n = min(n, len(h.turns))
	passed := h.turns[n:]
	h.turns = h.turns[:n]
	if len(passed) > 1 && (h.atOnce || h.lines.keepFor < 0) {
		var passing sync.WaitGroup
		for _, l := range passed {
			passing.Go(func() { h.lines.passTurn(ctx, l) })
		}
		passing.Wait()
		return
	}
	for _, l := range slices.Backward(passed) {
		h.lines.passTurn(ctx, l)
	}
}

func (t *lines) usable(s *grantState) bool {
	if s == nil || s.dead || s.lease.Err() != nil { // mutant: dead-grants-are-used
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !s.overrun && (s.contended == 0 || t.now()-s.contended < t.maxHold) // mutant: calls-go-on-although-others-wait
}

func (t *lines) acquire(ctx context.Context, lines ...*line) error {
	resources, superseders := make([]string, len(lines)), make([]*fence.Grant, len(lines))
	for i, l := range lines {
		resources[i], superseders[i] = l.resource, t.memory.of(l.resource).superseder
	}
	until, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.closing, func() { cancel(ErrClosed) })()
	start := time.Now()
	leases, err := t.ask(until, resources)
	if err != nil {
		err = withCause(until, acquireError(resources[0], err))
		t.failWaiting(ctx, err, lines)
		return err
	}
	for i, lease := range leases {
		t.report.acquired(until, lease.Grant(), time.Since(start))
		t.keep(lines[i], lease, superseders[i])
	}
	return nil
}

func (t *lines) ask(ctx context.Context, resources []string) ([]fence.Lease, error) {
	if len(resources) > 1 {
		return t.locker.TryAcquireAll(ctx, resources...)
	}
	t.report.acquiring(ctx, resources[0], 1)
	defer t.report.acquiring(ctx, resources[0], -1)
	lease, err := t.locker.Acquire(ctx, resources[0])
	return []fence.Lease{lease}, err
}

func (t *lines) keep(l *line, lease fence.Lease, superseder *fence.Grant) {
	grant := lease.Grant()
	s := &grantState{claim: storage.Claim{Grant: grant, Position: t.memory.of(grant.Resource).at}, superseder: superseder, lease: lease, line: l}
	t.mu.Lock()
	l.lease = s
	t.mu.Unlock()
	lease.AfterLost(s.lost)
	lease.AfterContended(s.contend)
}

// raise has a lock service that lost its count go on above each fence that rejected one of states with err, and
// returns err.
func (t *lines) raise(ctx context.Context, states grantStates, err error) error {
	service, can := t.locker.(fence.Raiser)
	for _, s := range states {
		r := rejectionOf(err, s.claim.Grant)
		if !can || s.lease == nil || r == nil || r.Reason != storage.ReasonStale {
			continue
		}
		if failed := service.Raise(ctx, r.Current); failed != nil {
			return fmt.Errorf("%w; the lock service was not raised: %w", err, failed)
		}
		s.raised = true
	}
	return err
}

func acquireError(resource string, err error) error {
	if away := (*fence.UnavailableError)(nil); errors.As(err, &away) && away.Op == "acquire "+resource {
		return fmt.Errorf("guard: %w", err)
	}
	return fmt.Errorf("guard: acquire %s: %w", resource, err)
}

const releaseTimeout = 5 * time.Second

func (t *lines) release(ctx context.Context, l *line) {
	s := l.lease
	t.mu.Lock()
	l.lease = nil
	if s.contended > 0 {
		s.last = anotherProcess
	}
	t.busy.Add(1)
	t.stopExpiry(s)
	t.mu.Unlock()
	t.memory.givenUp(s)
	released := make(chan struct{})
	go func() {
		defer close(released)
		err := releaseLease(s.lease)
		t.report.released(s.claim.Grant, err)
		t.mu.Lock()
		if err != nil && t.closed {
			t.unreleased = append(t.unreleased, fmt.Errorf("guard: release %s: %w", l.resource, err))
		}
		t.mu.Unlock()
		t.busy.Done()
	}()
	select {
	case <-released:
	case <-ctx.Done():
	}
}

// releaseLease ignores the calls' contexts, whose end would keep the resource from the next process. A panic or a
// runtime.Goexit of the lock service becomes an error: it must not end the process, or make Close wait for ever.
func releaseLease(lease fence.Lease) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if failure := callback.Run(func() { err = lease.Release(ctx) }); failure != nil {
		return failure
	}
	return err
}

// releaseEarly releases a lease under which a function still runs. The usual release then does nothing.
func (t *lines) releaseEarly(s *grantState) {
	t.mu.Lock()
	s.overrun = true
	t.mu.Unlock()
	if s.lease != nil {
		go releaseLease(s.lease)
	}
}

func (t *lines) releaseAndPass(ctx context.Context, l *line) {
	t.release(ctx, l)
	t.passTurn(ctx, l)
}

// contend lets go of a lease. If it is in use, that is when no more calls wait here, or after maxHold between two
// calls.
func (s *grantState) contend() {
	t := s.line.lines
	t.mu.Lock()
	if s.contended == 0 {
		s.contended = t.now()
	}
	t.mu.Unlock()
	s.releaseIfIdle()
}

func (s *grantState) lost() {
	t := s.line.lines
	t.mu.Lock()
	inUse := s.line.busy && s.line.lease == s
	t.mu.Unlock()
	if run := s.running.Load(); run != nil {
		run.end(s.lease.Err()) // mutant: functions-outlive-their-lease
	}
	var loss *fence.LeaseLostError
	if errors.As(s.lease.Err(), &loss) {
		t.report.leaseLost(loss, inUse)
	}
	s.releaseIfIdle()
}

func (s *grantState) releaseIfIdle() {
	t := s.line.lines
	t.mu.Lock()
	took := t.takeIdle(s)
	t.mu.Unlock()
	if took {
		t.releaseAndPass(context.Background(), s.line)
	}
}

func (t *lines) takeIdle(s *grantState) bool {
	if s.line.busy || s.line.lease != s {
		return false
	}
	s.line.busy = true
	return true
}

// maxExpiryReleases bounds releases at a time, because thousands of leases may expire together while others have to
// be renewed.
const maxExpiryReleases = 8

func (t *lines) startExpiry(s *grantState) {
	t.stopExpiry(s)
	s.idleSince = t.now()
	t.idle.insert(&s.links, s, nil)
	if !t.expiring {
		t.expiring = true
		t.timer.Reset(t.keepFor)
	}
}

func (t *lines) stopExpiry(s *grantState) {
	if s.listed() {
		t.idle.remove(&s.links)
	}
}

func (t *lines) releaseExpired(places chan struct{}) {
	for {
		places <- struct{}{}
		l := t.takeExpired()
		if l == nil {
			<-places
			return
		}
		go func() {
			t.releaseAndPass(context.Background(), l)
			<-places
		}()
	}
}

func (t *lines) takeExpired() *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := t.idle.front(); s != nil; s = t.idle.front() {
		if left := s.idleSince + t.keepFor - t.now(); left > 0 && !t.closed {
			t.timer.Reset(left)
			return nil
		}
		t.stopExpiry(s)
		if t.takeIdle(s) {
			return s.line
		}
	}
	t.expiring = false
	return nil
}

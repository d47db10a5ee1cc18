package chaos

import (
	"context"
	"slices"
	"sync"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/internal/clock"
)

// story gathers what everybody tells during a run, writes it to the history, and
// lets the run wait for what it wants to hear. Its methods may be called
// concurrently.
type story struct {
	recorder *history.Recorder

	mu        sync.Mutex
	events    []history.Event
	listeners []*listener
}

// listener waits for certain events.
type listener struct {
	story *story
	wants func(history.Event) bool
	heard chan struct{} // has a token when queue is not empty
	queue []history.Event
}

// tell stamps what the run itself tells.
func (s *story) tell(e history.Event) {
	if e.Process == "" {
		e.Process = history.Runner
	}
	e.At = clock.Now()
	s.take(e)
}

// take takes an event that has its time.
func (s *story) take(e history.Event) {
	s.recorder.Tell(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	for _, l := range s.listeners {
		if l.wants(e) {
			l.queue = append(l.queue, e)
			l.wake()
		}
	}
}

// phase tells that the run enters a phase.
func (s *story) phase(name string) { s.tell(history.Event{Kind: history.Phase, Name: name}) }

// listen hears the events that it wants from now on, until stop.
func (s *story) listen(wants func(history.Event) bool) *listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &listener{story: s, wants: wants, heard: make(chan struct{}, 1)}
	s.listeners = append(s.listeners, l)
	return l
}

func (l *listener) stop() {
	l.story.mu.Lock()
	defer l.story.mu.Unlock()
	l.story.listeners = slices.DeleteFunc(l.story.listeners, func(other *listener) bool { return other == l })
}

// next returns the next event that is wanted; each only once.
func (l *listener) next(ctx context.Context) (history.Event, error) {
	select {
	case <-l.heard:
	case <-ctx.Done():
		return history.Event{}, context.Cause(ctx)
	}
	l.story.mu.Lock()
	defer l.story.mu.Unlock()
	e := l.queue[0]
	l.queue = l.queue[1:]
	if len(l.queue) > 0 {
		l.wake()
	}
	return e, nil
}

// any reports whether something was heard that next would return.
func (l *listener) any() bool {
	l.story.mu.Lock()
	defer l.story.mu.Unlock()
	return len(l.queue) > 0
}

func (l *listener) wake() {
	select {
	case l.heard <- struct{}{}:
	default:
	}
}

// all returns what was told so far, in order of its times.
func (s *story) all() []history.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := slices.Clone(s.events)
	slices.SortStableFunc(events, func(a, b history.Event) int { return int(min(max(a.At-b.At, -1), 1)) })
	return events
}

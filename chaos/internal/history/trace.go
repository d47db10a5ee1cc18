package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/fencekit/fencekit/internal/clock"
)

// Trace collects events, writes them to a history, and lets a run wait for them. Each is written in one
// piece: a process that is killed leaves only whole ones. Its methods may be called concurrently.
type Trace struct {
	mu     sync.Mutex
	out    io.Writer
	err    error
	events []Event
	added  chan struct{} // closed when the next event is added
}

// NewTrace returns a Trace that writes to out without a buffer.
func NewTrace(out io.Writer) *Trace { return &Trace{out: out, added: make(chan struct{})} }

// Err is why events are missing in the history; nil if none is.
func (t *Trace) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Record adds an event with the present time, of the run itself unless it names another process.
func (t *Trace) Record(e Event) {
	e.Process = cmp.Or(e.Process, Runner)
	e.At = clock.Now()
	t.Add(e)
}

// Add adds an event that has a time. Once it has failed to write one it writes no more.
func (t *Trace) Add(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, e)
	close(t.added)
	t.added = make(chan struct{})
	if t.err != nil {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = t.out.Write(append(line, '\n'))
	}
	if err != nil {
		t.err = fmt.Errorf("history: an event could not be written, so the history is incomplete: %w", err)
	}
}

// Phase records that the run enters a phase.
func (t *Trace) Phase(name string) { t.Record(Event{Kind: Phase, Name: name}) }

// Listener finds certain events.
type Listener struct {
	trace *Trace
	wants func(Event) bool
	seen  int // number of events that it has looked at
}

// Listen returns a Listener for the events for which wants is true, from now on.
func (t *Trace) Listen(wants func(Event) bool) *Listener {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Listener{t, wants, len(t.events)}
}

// Next returns the next event, and waits until there is one.
func (l *Listener) Next(ctx context.Context) (Event, error) {
	for {
		l.trace.mu.Lock()
		events, added := l.trace.events, l.trace.added
		l.trace.mu.Unlock()
		for l.seen < len(events) {
			l.seen++
			if e := events[l.seen-1]; l.wants(e) {
				return e, nil
			}
		}
		select {
		case <-added:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// Events returns the events so far, in the order of their times.
func (t *Trace) Events() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := slices.Clone(t.events)
	Sort(events)
	return events
}

// Sort sorts events by their times.
func Sort(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// Read calls take for each event, in order. It fails at the first line that is no event. A
// last line without an end is ignored: its process was killed.
func Read(in io.Reader, take func(Event)) error {
	lines := json.NewDecoder(in)
	for number := 1; ; number++ {
		var e Event
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("history: line %d is no event: %w", number, err)
		}
		take(e)
	}
}

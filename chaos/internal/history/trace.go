package history

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/fencekit/fencekit/internal/clock"
)

// Trace collects the events of a run's processes, writes them to the history, and lets the
// run wait for events. Its methods may be called concurrently.
type Trace struct {
	recorder *Recorder

	mu     sync.Mutex
	events []Event
	added  chan struct{} // closed when the next event is added
}

// NewTrace returns a Trace that writes to a history.
func NewTrace(recorder *Recorder) *Trace {
	return &Trace{recorder: recorder, added: make(chan struct{})}
}

// Err is why events are missing in the history; nil if none is.
func (t *Trace) Err() error { return t.recorder.Err() }

// Record adds an event of the run itself, with the present time.
func (t *Trace) Record(e Event) {
	if e.Process == "" {
		e.Process = Runner
	}
	e.At = clock.Now()
	t.Add(e)
}

// Add adds an event that has a time.
func (t *Trace) Add(e Event) {
	t.recorder.Record(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, e)
	close(t.added)
	t.added = make(chan struct{})
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
	slices.SortStableFunc(events, func(a, b Event) int { return int(min(max(a.At-b.At, -1), 1)) })
	return events
}

// Recorder writes events, each in one piece: a process that is killed leaves only whole
// ones. Its methods may be called concurrently.
type Recorder struct {
	mu  sync.Mutex
	out io.Writer
	err error
}

// NewRecorder returns a Recorder that writes to out without a buffer.
func NewRecorder(out io.Writer) *Recorder { return &Recorder{out: out} }

// Record gives an event a time if it has none, and writes it. Err returns the first
// failure; nothing is written after it.
func (r *Recorder) Record(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.At == 0 {
		e.At = clock.Now()
	}
	if r.err != nil {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	if err != nil {
		r.err = fmt.Errorf("history: an event could not be written, so the history is incomplete: %w", err)
	}
}

// Err is why events are missing; nil if none is.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Read calls take for each event, in order. It fails at the first line that is no event. A
// last line without an end is ignored: its process was killed.
func Read(in io.Reader, take func(Event) error) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("history: line %d: %w", number, err)
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("history: line %d is no event: %w", number, err)
		}
		if err := take(e); err != nil {
			return err
		}
	}
}

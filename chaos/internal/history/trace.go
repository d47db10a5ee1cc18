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

	mu        sync.Mutex
	events    []Event
	listeners []*Listener
}

// NewTrace returns a Trace that writes to a history.
func NewTrace(recorder *Recorder) *Trace { return &Trace{recorder: recorder} }

// Err is why events are missing in the history; nil if none is.
func (t *Trace) Err() error { return t.recorder.Err() }

// Listener waits for certain events.
type Listener struct {
	trace *Trace
	wants func(Event) bool
	heard chan struct{} // has a token when queue is not empty
	queue []Event
}

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
	for _, l := range t.listeners {
		if l.wants(e) {
			l.queue = append(l.queue, e)
			l.wake()
		}
	}
}

// Phase records that the run enters a phase.
func (t *Trace) Phase(name string) { t.Record(Event{Kind: Phase, Name: name}) }

// Listen queues the events for which wants is true, from now on, until Stop.
func (t *Trace) Listen(wants func(Event) bool) *Listener {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &Listener{trace: t, wants: wants, heard: make(chan struct{}, 1)}
	t.listeners = append(t.listeners, l)
	return l
}

// Stop ends listening.
func (l *Listener) Stop() {
	l.trace.mu.Lock()
	defer l.trace.mu.Unlock()
	l.trace.listeners = slices.DeleteFunc(l.trace.listeners, func(other *Listener) bool { return other == l })
}

// Next returns the next event of the queue, and waits if it is empty.
func (l *Listener) Next(ctx context.Context) (Event, error) {
	select {
	case <-l.heard:
	case <-ctx.Done():
		return Event{}, context.Cause(ctx)
	}
	l.trace.mu.Lock()
	defer l.trace.mu.Unlock()
	e := l.queue[0]
	l.queue = l.queue[1:]
	if len(l.queue) > 0 {
		l.wake()
	}
	return e, nil
}

// Any reports whether Next would return an event at once.
func (l *Listener) Any() bool {
	l.trace.mu.Lock()
	defer l.trace.mu.Unlock()
	return len(l.queue) > 0
}

func (l *Listener) wake() {
	select {
	case l.heard <- struct{}{}:
	default:
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

// MaxLine bounds one line of a history, in bytes.
const MaxLine = 1 << 20

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
		if len(line) > MaxLine {
			return fmt.Errorf("history: line %d is longer than %d bytes: this is no history", number, MaxLine)
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

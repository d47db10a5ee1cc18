// Package history is the record that the processes of a chaos run write, a file of JSON lines.
//
// Its times are the machine's monotonic clock, which all processes share. An operation without ok, fail or unknown
// was cut off with its process, and counts as unknown. What workers record of their Guards explains a run, and is
// checked against what package observe saw.
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

	"github.com/fencekit/fencekit/internal/test/clock"
)

// Kind says what an event is about.
type Kind string

const (
	Invoke  Kind = "invoke"  // an operation begins
	OK      Kind = "ok"      // it took effect
	Fail    Kind = "fail"    // it took no effect and never will
	Unknown Kind = "unknown" // it did or it didn't
	Answer  Kind = "answer"  // how an unknown one was resolved later: Applied
)

const (
	Acquired Kind = "acquired" // the lock service granted the resource
	Claimed  Kind = "claimed"  // the grant has claimed in the database
	Rejected Kind = "rejected" // the fence rejected the grant; Error says why that could not be recorded
	Lost     Kind = "lost"     // the lease was lost
	Released Kind = "released" // the grant was released
	Resolved Kind = "resolved" // a COMMIT in doubt was resolved: Applied
	Reached  Kind = "reached"  // an armed Point was reached: the process is about to do as Name says
)

const (
	Phase    Kind = "phase"    // the run enters Name: one of the phases below
	Injected Kind = "injected" // the fault Name was injected into Process
	Reverted Kind = "reverted" // it was reverted
	Starts   Kind = "starts"   // the worker process Process runs
	Ends     Kind = "ends"     // it has ended; Error says how, unless it was asked to end
	Note     Kind = "note"     // Name says what else happened
)

const (
	PhaseLoad       = "load"        // workers work
	PhaseFaultsOver = "faults over" // all are reverted
	PhaseFinal      = "final"       // every resource has to be worked on once more
	PhaseEnd        = "end"         // all workers have ended
)

// What a process does at an armed point that it has reached, by Event.Name.
const (
	ThenPause = "pause"
	ThenKill  = "kill"
)

// Runner is the Process of what the run itself records.
const Runner = "run"

// Event is one line of a history. Which fields it has depends on its kind.
type Event struct {
	At      int64  `json:"at"` // ns of the machine's monotonic clock
	Kind    Kind   `json:"kind"`
	Process string `json:"process"`        // the worker that recorded it, or that it is about
	Name    string `json:"name,omitempty"` // of a phase, a fault or a note, or what the process does at Point

	Op        string   `json:"op,omitempty"`        // the operation's id, unique in the run
	Action    string   `json:"action,omitempty"`    // what it does, as "do" or "hold"
	Resources []string `json:"resources,omitempty"` // that the operation uses
	SoldOut   bool     `json:"sold_out,omitempty"`  // it failed because too little was in stock, which counts as progress
	Error     string   `json:"error,omitempty"`
	Applied   bool     `json:"applied,omitempty"`

	Resource string `json:"resource,omitempty"` // of the grant
	Epoch    int64  `json:"epoch,omitempty"`
	Token    int64  `json:"token,omitempty"`
	Holder   string `json:"holder,omitempty"`
	Current  int64  `json:"current,omitempty"` // the fence's token when it rejected Token
	Reason   string `json:"reason,omitempty"`  // of a rejection or a loss
	Stage    string `json:"stage,omitempty"`   // of a rejection
	Cause    string `json:"cause,omitempty"`   // of a rejection found afterwards: what had ended the transaction; empty if the database rejected it
	Point    string `json:"point,omitempty"`   // that was reached
}

// Trace collects events, writes each to a history in one piece, and lets a run wait for them. Its methods may be
// called concurrently.
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

// Listen returns what waits for the next event for which wants is true, one after another from now on.
func (t *Trace) Listen(wants func(Event) bool) (next func(context.Context) (Event, error)) {
	t.mu.Lock()
	seen := len(t.events)
	t.mu.Unlock()
	return func(ctx context.Context) (Event, error) {
		for {
			t.mu.Lock()
			events, added := t.events, t.added
			t.mu.Unlock()
			for seen < len(events) {
				seen++
				if e := events[seen-1]; wants(e) {
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

// Read calls take for each event. A last line without an end is ignored: its process was killed.
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

// Text is the text of an error for an Event; empty for nil.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

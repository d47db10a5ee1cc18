package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fencekit/fencekit/internal/clock"
)

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

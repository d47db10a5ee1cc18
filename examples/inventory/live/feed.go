package live

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// keep is how many entries a browser that comes back finds, at most.
const keep = 5000

// feed is what browsers are told: entries, each with an ID, and the present state.
type feed struct {
	run string // begins every ID: one of an earlier process is not ours

	mu      sync.Mutex
	entries []entry
	dropped int // how many came before entries
	state   []byte
	changed chan struct{} // closed by the next change
}

func newFeed() *feed {
	return &feed{run: strconv.FormatInt(time.Now().UnixNano(), 36), state: []byte("{}"), changed: make(chan struct{})}
}

func (f *feed) tell(e entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.entries) == keep {
		f.entries = f.entries[1:]
		f.dropped++
	}
	e.ID = fmt.Sprintf("%s-%d", f.run, f.dropped+len(f.entries)+1)
	f.entries = append(f.entries, e)
	f.notify()
}

func (f *feed) show(state []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if string(state) != string(f.state) {
		f.state = state
		f.notify()
	}
}

func (f *feed) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// after returns what has come since the first n entries, how many there are now, and what is closed when there is
// more.
func (f *feed) after(n int) (entries []entry, now int, state []byte, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	skip := min(max(0, n-f.dropped), len(f.entries))
	return f.entries[skip:], f.dropped + len(f.entries), f.state, f.changed
}

// seen reads a Last-Event-ID: how many entries that browser has. 0 if it is none of ours.
func (f *feed) seen(id string) int {
	number, ours := strings.CutPrefix(id, f.run+"-")
	n, err := strconv.Atoi(number)
	if !ours || err != nil {
		return 0
	}
	return n
}

package failover_test

import (
	"errors"
	"sync"
	"time"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// ledger is what the calls of guard.Do have returned, by the id of the sale that each was to
// make.
type ledger struct {
	mu           sync.Mutex
	acknowledged map[string]sold
	failed       map[string]error
	unknown      map[string]*guard.UnknownOutcomeError
	rejected     int             // by the fence
	named        map[counter]int // how often the calls of a counter were told that the database went back
	elsewhere    func(port int)
}

// counter is where a shop sells an article.
type counter struct{ shop, sku string }

// sold is a sale that was acknowledged.
type sold struct {
	counter
	named int // how often calls of the counter had been told by then that the database went back
}

func newLedger() *ledger {
	return &ledger{acknowledged: map[string]sold{}, failed: map[string]error{}, unknown: map[string]*guard.UnknownOutcomeError{}, named: map[counter]int{}}
}

// lossWasNamed reports whether a later call of the counter that made the sale, which was lost, was
// told that the database went back.
func (l *ledger) lossWasNamed(id string) bool {
	s := l.acknowledged[id]
	return l.named[s.counter] > s.named
}

// note notes how the sale with an id ended; port is that of the Postgres that it ran on.
func (l *ledger) note(id string, at counter, port int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var unknown *guard.UnknownOutcomeError
	var rejected *guard.RejectedError
	switch {
	case err == nil:
		l.acknowledged[id] = sold{at, l.named[at]}
		if l.elsewhere != nil {
			l.elsewhere(port)
		}
	case errors.As(err, &unknown):
		l.unknown[id] = unknown
	default:
		l.failed[id] = err
		if errors.As(err, &rejected) {
			l.rejected++
			if rejected.Reason == storage.ReasonWentBack {
				l.named[at]++
			}
		}
	}
}

// firstElsewhere returns a channel that gets the time of the first sale from now on that is
// acknowledged by another Postgres than the one with this port.
func (l *ledger) firstElsewhere(port int) <-chan time.Time {
	first := make(chan time.Time, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.elsewhere = func(other int) {
		if other != port {
			first <- time.Now()
			l.elsewhere = nil
		}
	}
	return first
}

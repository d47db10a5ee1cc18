package failover_test

import (
	"errors"
	"sync"
	"time"

	"github.com/fencekit/fencekit/guard"
)

// ledger is what the calls of guard.Do have returned, by the id of the sale that each was to
// make.
type ledger struct {
	mu           sync.Mutex
	acknowledged map[string]bool
	failed       map[string]error
	unknown      map[string]*guard.UnknownOutcomeError
	rejected     int // by the fence
	elsewhere    func(port int)
}

func newLedger() *ledger {
	return &ledger{acknowledged: map[string]bool{}, failed: map[string]error{}, unknown: map[string]*guard.UnknownOutcomeError{}}
}

// note notes how the sale with an id ended; port is that of the Postgres that it ran on.
func (l *ledger) note(id string, port int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var unknown *guard.UnknownOutcomeError
	var rejected *guard.RejectedError
	switch {
	case err == nil:
		l.acknowledged[id] = true
		if l.elsewhere != nil {
			l.elsewhere(port)
		}
	case errors.As(err, &unknown):
		l.unknown[id] = unknown
	default:
		l.failed[id] = err
		if errors.As(err, &rejected) {
			l.rejected++
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

package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// story prints what happens. It may be told from several goroutines.
type story struct {
	out io.Writer

	mu     sync.Mutex
	start  time.Time
	tokens map[string]int64 // of each worker's latest lock
	sold   map[string]int   // by each worker, when it was last told
	paused string           // which worker is stopped, until another has taken over
}

func (s *story) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start, s.tokens, s.sold, s.paused = time.Now(), map[string]int64{}, map[string]int{}, ""
}

func (s *story) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(format, args...)
}

func (s *story) line(format string, args ...any) {
	fmt.Fprintf(s.out, "  %5.1f s  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

func (s *story) sales(sold map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellSales(sold)
}

func (s *story) tellSales(sold map[string]int) {
	var parts []string
	for _, worker := range slices.Sorted(maps.Keys(sold)) {
		if more := sold[worker] - s.sold[worker]; more > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", worker, more))
		}
	}
	if len(parts) > 0 {
		s.line("sold, lock passing from hand to hand: %s", strings.Join(parts, ", "))
	}
	s.sold = sold
}

func (s *story) event(worker string, e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Event {
	case eventHolds:
		s.tokens[worker] = e.Token
		if s.paused != "" && e.Token > s.tokens[s.paused] { // not one told late
			s.line("the lease of %s has run out: %s takes over with token %d", s.paused, worker, e.Token)
			s.paused = ""
		}
	case eventSold:
		if e.Quantity == pausedQuantity {
			s.line("%s has written order %s: %d units that were sold already", worker, e.Order, e.Quantity)
		}
	case eventPausing:
		s.tellSales(e.Sold)
		s.paused = worker
		s.line("%s (token %d) reads %d available, decides to give %d to order %s, has not written yet",
			worker, s.tokens[worker], e.Available, e.Quantity, e.Order)
	case eventResumed:
		s.line("%s writes order %s as it had decided", worker, e.Order)
	case eventRejected:
		s.line("REJECTED by Postgres: %s's token %d was superseded by %d (%s, claimed %.1f s ago)", worker, e.Token, e.Current, label(e.Holder), e.Age)
	case eventFailed:
		s.line("%s failed: %s", worker, e.Error)
	}
}

// label is a holder without its nonce.
func label(holder string) string {
	if i := strings.LastIndexByte(holder, '-'); i > 0 {
		return holder[:i]
	}
	return holder
}

package soak_test

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// stalls knows how long callers had to wait.
type stalls struct {
	mu        sync.Mutex
	succeeded int
	failed    int
	longest   time.Duration // from the beginning of an operation to its end
	lastOK    time.Time
	silence   time.Duration          // the longest time in which no operation of any caller succeeded
	fresh     map[*process]time.Time // when the latest operation of a process that succeeded began
	changed   chan struct{}          // closed and replaced at each success
	errors    map[string]int         // by kind
	examples  map[string]string      // of each kind
}

func newStalls() stalls {
	return stalls{
		lastOK: time.Now(), fresh: map[*process]time.Time{}, changed: make(chan struct{}),
		errors: map[string]int{}, examples: map[string]string{},
	}
}

// ended takes the end of an operation.
func (s *stalls) ended(p *process, began time.Time, err error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = max(s.longest, now.Sub(began))
	if err != nil {
		s.failed++
		s.errors[classOf(err)]++
		s.examples[classOf(err)] = fmt.Sprintf("%.500s", err)
		return
	}
	s.succeeded++
	s.silence = max(s.silence, now.Sub(s.lastOK))
	s.lastOK = now
	if began.After(s.fresh[p]) {
		s.fresh[p] = began
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// awaitProgress waits until every process has begun and finished an operation
// since a time.
func (s *stalls) awaitProgress(ctx context.Context, processes []*process, since time.Time) error {
	for {
		s.mu.Lock()
		behind := 0
		for _, p := range processes {
			if !s.fresh[p].After(since) {
				behind++
			}
		}
		changed := s.changed
		s.mu.Unlock()
		if behind == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d processes have done nothing since the servers are well again: %w", behind, len(processes), ctx.Err())
		}
	}
}

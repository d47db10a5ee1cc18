package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/examples/inventory/service"
)

// ledger is which orders were acknowledged, and when the last one was.
type ledger struct {
	mu     sync.Mutex
	orders map[string]bool
	last   time.Time
}

func newLedger() *ledger { return &ledger{orders: map[string]bool{}} }

func (l *ledger) note(order string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[order], l.last = true, time.Now()
}

func (l *ledger) copy() *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &ledger{orders: maps.Clone(l.orders), last: l.last}
}

// missing returns the acknowledged orders that are not among these, and how many there are.
func (l *ledger) missing(there map[string]bool) (lost []string, acknowledged int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for order := range l.orders {
		if !there[order] {
			lost = append(lost, order)
		}
	}
	return lost, len(l.orders)
}

// seller is a server of the inventory and its customer, who asks again with the same key until
// there is an answer.
type seller struct {
	name, url string
	ledger    *ledger
}

func (s *seller) sell(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("%s-%d", s.name, n)
		for ctx.Err() == nil {
			if order, err := s.deduct(ctx, key); err == nil {
				s.ledger.note(order)
				break
			}
			pause(ctx, 100*time.Millisecond)
		}
		pause(ctx, 50*time.Millisecond) // until the next customer comes
	}
}

func (s *seller) deduct(ctx context.Context, key string) (order string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/skus/"+service.SKU+"/deduct", strings.NewReader(`{"qty": 1}`))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s", s.name, resp.Status)
	}
	var answer struct {
		Order string `json:"order"`
	}
	return answer.Order, json.NewDecoder(resp.Body).Decode(&answer)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

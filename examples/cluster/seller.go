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

type ledger struct {
	mu     sync.Mutex
	orders map[string]bool
	last   time.Time
}

func (l *ledger) note(order string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[order], l.last = true, time.Now()
}

func (l *ledger) known() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.orders)
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

package check_test

import (
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

func TestOwnership(t *testing.T) {
	flags(t, "I12", []spoiled{
		{"a lock granted while another's key is first", func(m *made) {
			first := m.acquire("w1", "sku/1")
			m.release(m.acquire("w2", "sku/1"))
			m.release(first)
		}, check.Violated},
		{"a lock granted while the first is never released", func(m *made) {
			m.acquire("w1", "sku/1")
			m.release(m.acquire("w2", "sku/1"))
		}, check.Violated},
		{"a waiter that waits for its neighbour alone", func(m *made) {
			first, middle := m.acquire("w1", "sku/1"), m.grant("w2", "sku/1")
			m.gone(middle)
			m.release(m.acquire("w3", "sku/1"))
			m.release(first)
		}, check.Violated},
		{"a token without a key", func(m *made) {
			m.record((&lock{process: "w1", resource: "sku/1", holder: "w1-0", token: 9999}).event(history.Acquired))
		}, check.Violated},
		{"a token of another resource's key", func(m *made) {
			l := *m.grant("w1", "sku/2")
			l.resource = "sku/1"
			m.record(l.event(history.Acquired))
		}, check.Violated},
		{"a waiter that gave up", func(m *made) {
			first, waiter := m.acquire("w1", "sku/1"), m.grant("w2", "sku/1")
			m.gone(waiter)
			m.release(first)
		}, check.Held},
		{"two leases that ended at once", func(m *made) {
			m.gone(m.acquire("w1", "sku/1"))
			m.acquire("w2", "sku/1")
		}, check.Held},
		{"a queue of another resource", func(m *made) {
			m.acquire("w1", "sku/1")
			m.release(m.acquire("w2", "sku/2"))
		}, check.Held},
		{"a gap in the watch", func(m *made) {
			m.Observed.Locks.Events, m.Observed.Locks.Gap = nil, "it broke"
		}, check.Unchecked},
	})
}

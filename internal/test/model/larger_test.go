package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkLargerBounds explores what takes too long, or too much memory, for every run of the
// tests, and reports the numbers of states.
func BenchmarkLargerBounds(b *testing.B) {
	var (
		shared     = Faults{LostReplies: true, SharedGrants: true}
		aborts     = Faults{LostReplies: true, LostClaims: true, Aborts: true}
		everything = Faults{LostReplies: true, LostClaims: true, SharedGrants: true, ReissuedTokens: true, Aborts: true, Held: true}
		failing    = Faults{LostReplies: true, SharedGrants: true, Aborts: true}
		failover   = Faults{LostReplies: true, SharedGrants: true, Held: true, Failover: true}
		outside    = Faults{LostReplies: true, SharedGrants: true, Held: true, Failover: true, OutsideReads: true}
		restore    = Faults{LostReplies: true, SharedGrants: true, Held: true, Restore: true}
		both       = Faults{ReissuedTokens: true, Held: true, Failover: true, Restore: true}
		promoted   = Faults{LostReplies: true, Failover: true, Synchronous: true}
		crashes    = Faults{LostReplies: true, Crashes: true, SharedGrants: true}
		crashLoss  = Faults{LostReplies: true, Crashes: true, SharedGrants: true, Failover: true}
		crashSync  = Faults{LostReplies: true, Crashes: true, SharedGrants: true, Failover: true, Synchronous: true}
	)
	for _, row := range []struct {
		name string
		m    Protocol
	}{
		{"lost replies and claims, aborts 3x3x2", within(3, 3, 2, aborts)},
		{"shared 3x3x3", within(3, 3, 3, shared)},
		{"everything but loss 2x3x3", within(2, 3, 3, everything)},
		{"pruning 2x3x2", within(2, 3, 2, Faults{LostReplies: true, SharedGrants: true, Pruning: 1})},
		{"failover 2x3x2", within(2, 3, 2, failover)},
		{"failover 2x2x3", within(2, 2, 3, failover)},
		{"failover, reads outside 3x2x2", within(3, 2, 2, outside)},
		{"restore 2x3x2", within(2, 3, 2, restore)},
		{"restore 3x2x2", within(3, 2, 2, restore)},
		{"restore 3x1x3", within(3, 1, 3, Faults{SharedGrants: true, Held: true, Restore: true})},
		{"database and lock service go back", within(2, 3, 2, both)},
		{"two resources, shared 2x3x2", within(2, 3, 2, shared).onTwo()},
		{"two resources, failover 2x2x2", within(2, 2, 2, failover).onTwo()},
		{"two resources 2x2x3", within(2, 2, 3, Faults{LostReplies: true}).onTwo()},
		{"batches 2x2x4", within(2, 2, 4, Faults{LostReplies: true}).batched(2)},
		{"batches, shared 2x3x2", within(2, 3, 2, failing).batched(2)},
		{"batches of 3, shared 2x2x3", within(2, 2, 3, failing).batched(3)},
		{"batches, synchronous 2x2x4", within(2, 2, 4, promoted).batched(2)},
		{"two resources, and one of them 2x2x3", within(2, 2, 3, Faults{LostReplies: true}).onTwo().mixed()},
		{"Once, shared 3x1x3", within(3, 1, 3, crashes).once(1)},
		{"Once, two keys 2x2x3", within(2, 2, 3, crashes).once(2)},
		{"Once, failover 2x2x3", within(2, 2, 3, crashLoss).once(1)},
		{"Once, synchronous 2x2x2", within(2, 2, 2, crashSync).once(1)},
		{"Once, reissued tokens 2x3x2", within(2, 3, 2, Faults{LostReplies: true, Crashes: true, SharedGrants: true, ReissuedTokens: true}).once(1)},
		{"Once, two resources, shared 2x2x2", within(2, 2, 2, crashes).onTwo().once(1)},
		{"claims within transactions 3x4x2", within(3, 4, 2, Faults{LostReplies: true, Aborts: true}).own()},
		{"claims within transactions 2x3x3", within(2, 3, 3, aborts).own()},
		{"claims within transactions, two resources 2x3x2", within(2, 3, 2, Faults{LostReplies: true}).own().onTwo()},
		{"claims within transactions, shared, failover 2x2x2", within(2, 2, 2, failover).own()},
		{"claims within transactions, synchronous 2x3x2", within(2, 3, 2, promoted).own()},
	} {
		explore(b, row.name, row.m)
	}
}

func explore(b *testing.B, name string, m Protocol) {
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			result, err := Explore(m, 6_000_000)
			require.NoError(b, err)
			require.Equal(b, Holds, result.Violation, Format(result.Schedule))
			b.ReportMetric(float64(result.States), "states")
		}
	})
}

package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkClaimSeal_LargerBounds explores what takes too long, or too much
// memory, for every run of the tests, and reports the numbers of states.
//
//	go test ./internal/model -run '^$' -bench LargerBounds -benchtime 1x
func BenchmarkClaimSeal_LargerBounds(b *testing.B) {
	shared := Faults{LostReplies: true, SharedGrants: true}
	lossy := Faults{LostReplies: true, SharedGrants: true, Held: true, Failover: true}
	restored := Faults{LostReplies: true, SharedGrants: true, Held: true, Restore: true}
	keyed := Faults{LostReplies: true, Crashes: true, SharedGrants: true}
	keyedLossy := Faults{LostReplies: true, Crashes: true, SharedGrants: true, Failover: true}
	replicated := Faults{LostReplies: true, Crashes: true, SharedGrants: true, Failover: true, Synchronous: true}
	everything := Faults{LostReplies: true, LostClaims: true, SharedGrants: true, ReissuedTokens: true, Aborts: true, Held: true}
	failing := Faults{LostReplies: true, SharedGrants: true, Aborts: true}
	promoted := Faults{LostReplies: true, Failover: true, Synchronous: true}
	claims := Faults{LostReplies: true, LostClaims: true, LockedRows: true}
	for _, c := range []struct {
		name string
		m    ClaimSeal
	}{
		{"shared 3x3x3", within(3, 3, 3, shared)},
		{"everything but loss 2x3x3", within(2, 3, 3, everything)},
		{"failover 2x3x2", within(2, 3, 2, lossy)},
		{"failover 3x2x2", within(3, 2, 2, lossy)},
		{"failover, reads outside, 3x2x2", within(3, 2, 2, lossy).mutated(Mutation{ReadOutside: true})},
		{"restore 2x3x2", within(2, 3, 2, restored)},
		{"restore 3x2x2", within(3, 2, 2, restored)},
		{"failover 2x2x3", within(2, 2, 3, lossy)},
		{"two resources shared 2x3x2", within(2, 3, 2, shared).onTwo()},
		{"two resources failover 2x2x2", within(2, 2, 2, lossy).onTwo()},
		{"two resources 2x2x3", within(2, 2, 3, Faults{LostReplies: true}).onTwo()},
		{"Once shared 3x1x3", within(3, 1, 3, keyed).once(1)},
		{"Once shared 2x2x3", within(2, 2, 3, keyed).once(1)},
		{"Once failover 2x2x3", within(2, 2, 3, keyedLossy).once(1)},
		{"Once two keys 2x2x3", within(2, 2, 3, keyed).once(2)},
		{"Once, two resources shared 2x2x2", within(2, 2, 2, keyed).once(1).onTwo()},
		{"groups, run again, 2x2x3", within(2, 2, 3, failing).grouped().rerun()},
		{"groups, run again, 2x3x2", within(2, 3, 2, failing).grouped().rerun()},
		{"groups, synchronous, run again, 2x2x4", within(2, 2, 4, promoted).grouped().rerun()},
		{"groups across 2x2x4", within(2, 2, 4, Faults{LostReplies: true}).across()},
		{"groups across, shared, 2x3x2", within(2, 3, 2, shared).across()},
		{"groups across, claimed together, 2x3x2", within(2, 3, 2, claims).across().together()},
		{"claimed together 2x3x2", within(2, 3, 2, claims).onTwo().together()},
		{"Once synchronous 2x2x2", within(2, 2, 2, replicated).once(1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				result, err := Explore(c.m, 4_000_000)
				require.NoError(b, err)
				require.Equal(b, Holds, result.Violation, Format(result.Schedule))
				b.ReportMetric(float64(result.States), "states")
			}
		})
	}
}

// BenchmarkOrder_LargerBounds does the same for acquisition.
func BenchmarkOrder_LargerBounds(b *testing.B) {
	for _, c := range []struct {
		name string
		m    Order
	}{
		{"2 processes x 3", Order{Procs: []int8{0, 1}, Resources: 3, Losses: 1, Kept: true}},
		{"2 processes x 3, losses 2", Order{Procs: []int8{0, 1}, Resources: 3, Least: 2, Losses: 2, Kept: true}},
		{"2 processes x 3, a third call, losses", Order{Procs: []int8{0, 1, 0}, Resources: 3, Least: 2, Losses: 1}},
		{"2 processes x 2, a third call, losses 2", Order{Procs: []int8{0, 1, 0}, Resources: 2, Losses: 2, Kept: true}},
		{"2 processes x 3, one Txn, losses 2", Order{Procs: []int8{0, 1}, Resources: 3, Least: 2, Losses: 2, Kept: true, OneTxn: true}},
		{"2 processes x 3, one Txn, a third call", Order{Procs: []int8{0, 1, 0}, Resources: 3, Least: 2, Kept: true, OneTxn: true}},
		{"3 processes x 3, one Txn, losses", Order{Procs: []int8{0, 1, 2}, Resources: 3, Least: 2, Losses: 1, OneTxn: true}},
		{"2 processes x 3, groups, losses", Order{Procs: []int8{0, 0, 1}, Resources: 3, Losses: 1, Kept: true, Groups: true}},
		{"3 processes x 3, losses", Order{Procs: []int8{0, 1, 2}, Resources: 3, Least: 2, Losses: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				result, err := Explore(c.m, 6_000_000)
				require.NoError(b, err)
				require.Equal(b, Holds, result.Violation, Format(result.Schedule))
				b.ReportMetric(float64(result.States), "states")
			}
		})
	}
}

// BenchmarkRows_LargerBounds does the same for row locks.
func BenchmarkRows_LargerBounds(b *testing.B) {
	for _, c := range []struct {
		name string
		m    Rows
	}{
		{"3 transactions x 3", Rows{Txs: 3, Resources: 3, Existing: 3}},
		{"3 transactions x 3, first uses", Rows{Txs: 3, Resources: 3, Existing: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				result, err := Explore(c.m, 6_000_000)
				require.NoError(b, err)
				require.Equal(b, Holds, result.Violation, Format(result.Schedule))
				b.ReportMetric(float64(result.States), "states")
			}
		})
	}
}

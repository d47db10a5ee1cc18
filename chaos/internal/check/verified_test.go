package check_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// tamper changes an entry by a fault, and has the verification find positions.
func (m *made) tamper(resource string, seq int64, found ...int64) {
	m.record(history.Event{Kind: history.Injected, Name: "tamper 0"})
	for _, c := range m.Observed.Commits {
		for _, change := range c.Changes {
			if change.Table == "fence.history" && change.Row["seq"] == strconv.FormatInt(seq, 10) && change.Row["resource"] == strconv.FormatInt(m.fences[resource].number, 10) {
				change.Action = "update"
				m.commit(change)
			}
		}
	}
	for _, at := range found {
		m.Observed.Verified.Findings = append(m.Observed.Verified.Findings, audit.Finding{Kind: audit.FindingChangedEntry, Resource: resource, Seq: at})
	}
}

func TestVerified(t *testing.T) {
	flags(t, "I13", []spoiled{
		{"a finding", func(m *made) {
			m.Observed.Verified.Findings = []audit.Finding{{Kind: audit.FindingWrongFence, Resource: "sku/1", Text: "wrong"}}
		}, check.Violated},
		{"a rejection by a claim that isn't there", func(m *made) {
			m.Observed.Verified.Unexplained = []audit.Finding{{Kind: audit.FindingUnexplainedRejection, Resource: "sku/1", Text: "unexplained"}}
		}, check.Violated},
		{"tampering that is found", func(m *made) { m.tamper("sku/1", 2, 2) }, check.Held},
		{"tampering that is not found", func(m *made) { m.tamper("sku/1", 2) }, check.Violated},
		{"tampering that is found elsewhere", func(m *made) { m.tamper("sku/1", 2, 3) }, check.Violated},
		{"tampering that is found, and more", func(m *made) { m.tamper("sku/1", 2, 2, 3) }, check.Violated},
		{"no verification", func(m *made) { m.Observed.Verified = nil }, check.Unchecked},
	})
}

// A fault that tampers explains a change of the history, and nothing else does.
func TestAgreement_AFaultMayChangeTheHistory(t *testing.T) {
	m := good()
	m.tamper("sku/1", 2, 2)
	require.Equal(t, check.Held, found(t, &m.Record, "I8").Status)
	m = good()
	m.Observed.Commits = append(m.Observed.Commits, observe.Commit{XID: 9999, Changes: []observe.Change{{Table: "fence.history", Action: "update"}}})
	require.Equal(t, check.Violated, found(t, &m.Record, "I8").Status)
}

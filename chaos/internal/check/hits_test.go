package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

func TestHits_OfAGoodRun(t *testing.T) {
	require.Equal(t, map[string]int{
		"fault pause": 1, "paused at seal": 1, "rejected at seal": 1, "failed: stale token": 1,
		"lease lost": 1, "lease lost in mid-operation": 1, "process ended": 2,
		"unknown applied": 1, "unknown not applied": 1, "cut off applied": 1, "cut off not applied": 1, "operations at once": 2,
	}, check.Hits(&good().Record))
}

func TestHits_OfOneEvent(t *testing.T) {
	for want, e := range map[string]history.Event{
		"fault cut":                   {Kind: history.Injected, Name: "cut w1 from etcd"},
		"killed at claimed":           {Kind: history.Reached, Point: "claimed", Name: history.ThenKill},
		"paused at await: SQL answer": {Kind: history.Reached, Point: "await: SQL answer", Name: history.ThenPause},
		"rejected at begin":           {Kind: history.Rejected, Reason: "stale", Stage: "begin"},
		"rejected at seal":            {Kind: history.Rejected, Reason: "stale", Stage: "seal"},
		"stale at the end at seal":    {Kind: history.Rejected, Reason: "stale", Stage: "seal", Cause: "unexpected EOF"},
		"rejected at run":             {Kind: history.Rejected, Reason: "stale", Stage: "run", Cause: "terminating connection"}, // an eviction
		"overtaken":                   {Kind: history.Rejected, Reason: "overtaken", Stage: "seal"},
		"collision":                   {Kind: history.Rejected, Reason: "collision", Stage: "claim"},
		"failed over":                 {Kind: history.Rejected, Reason: "failed over", Stage: "begin"},
		"lease lost":                  {Kind: history.Lost, Process: "w1", Resource: "sku/1"},
		"resolved applied":            {Kind: history.Resolved, Applied: true},
		"resolved not applied":        {Kind: history.Resolved},
		"process ended":               {Kind: history.Ends, Process: "w1", Error: "signal: killed"},
	} {
		require.Equal(t, map[string]int{want: 1}, check.Hits(&check.Record{Events: []history.Event{e}}))
	}
	for _, e := range []history.Event{
		{Kind: history.Resolved, Error: "the database is unavailable"},
		{Kind: history.Ends, Process: "w1"},
		{Kind: history.Acquired},
	} {
		require.Empty(t, check.Hits(&check.Record{Events: []history.Event{e}}))
	}
}

// A lease is lost in mid-operation only if the operation uses its resource.
func TestHits_LostInMidOperation(t *testing.T) {
	invoke := history.Event{Kind: history.Invoke, Process: "w1", Op: "a", Resources: []string{"sku/1"}}
	lost := history.Event{Kind: history.Lost, Process: "w1", Resource: "sku/1"}
	elsewhere, other := lost, lost
	elsewhere.Resource, other.Process = "sku/2", "w2"
	for name, c := range map[string]struct {
		events []history.Event
		want   int
	}{
		"in it":                {[]history.Event{invoke, lost}, 1},
		"after it":             {[]history.Event{invoke, {Kind: history.OK, Process: "w1", Op: "a"}, lost}, 0},
		"after its process":    {[]history.Event{invoke, {Kind: history.Ends, Process: "w1"}, lost}, 0},
		"of another resource":  {[]history.Event{invoke, elsewhere}, 0},
		"of another process's": {[]history.Event{invoke, other}, 0},
	} {
		require.Equal(t, c.want, check.Hits(&check.Record{Events: c.events})[check.HitLostMidway], name)
	}
}

// If the data is unknown, answers show how unknown outcomes were resolved.
func TestHits_WithoutData(t *testing.T) {
	m := good()
	m.Stock, m.Observed.Effects = false, nil
	hits := check.Hits(&m.Record)
	require.Equal(t, 1, hits[check.HitUnknownApplied])
	require.Equal(t, 1, hits[check.HitUnknownNotApplied])
	require.Zero(t, hits[check.HitCutOffNotApplied]+hits[check.HitCutOffApplied])
}

func TestCount_OfAGoodRun(t *testing.T) {
	require.Equal(t, check.Counts{Operations: 12, OK: 8, Failed: 2, Unknown: 2, Rejections: 1, Faults: 1}, check.Count(&good().Record))
}

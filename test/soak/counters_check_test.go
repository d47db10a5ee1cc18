package soak_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// counterState is one counter and the steps that were made to it.
type counterState struct {
	Counter string
	Value   int64
	Steps   int64
	Values  int64 // to how many different values
	Highest int64
}

// opSteps is what one operation has left.
type opSteps struct {
	Op    string
	Rows  int
	Value int64 // the highest that it wrote
}

func readCounters(t *testing.T, ctx context.Context, pool *pgxpool.Pool) (states []counterState, traces []opSteps) {
	rows, err := pool.Query(ctx, `
		select c.name, c.value, count(s.op), count(distinct s.value), coalesce(max(s.value), 0)
		from counter c left join step s on s.counter = c.name group by c.name, c.value`)
	require.NoError(t, err)
	states, err = pgx.CollectRows(rows, pgx.RowToStructByPos[counterState])
	require.NoError(t, err)
	require.Len(t, states, counters)
	rows, err = pool.Query(ctx, "select op, count(*), max(value) from step group by op")
	require.NoError(t, err)
	traces, err = pgx.CollectRows(rows, pgx.RowToStructByPos[opSteps])
	require.NoError(t, err)
	return states, traces
}

// checkCounters compares the counters with the steps, and these with what callers
// got as outcomes (G3, G4). It returns what is wrong.
func checkCounters(states []counterState, traces []opSteps, effects []effect) (wrong []string) {
	for _, s := range states {
		if s.Steps != s.Value || s.Values != s.Value || s.Highest != s.Value {
			wrong = append(wrong, fmt.Sprintf("updates were lost: %+v", s))
		}
	}
	left := map[string]opSteps{}
	for _, tr := range traces {
		left[tr.Op] = tr
	}
	for _, e := range effects {
		tr := left[e.op]
		delete(left, e.op)
		if tr.Rows != e.wantRows(tr.Rows) {
			wrong = append(wrong, fmt.Sprintf("operation %s was %s and left %d rows of %d", e.op, e.outcome, tr.Rows, e.rows))
		}
		if e.value != 0 && e.value != tr.Value {
			wrong = append(wrong, fmt.Sprintf("operation %s returned %d and wrote %d", e.op, e.value, tr.Value))
		}
	}
	for op := range left {
		wrong = append(wrong, fmt.Sprintf("operation %s was never called", op))
	}
	return wrong
}

// wantRows is how many rows the operation must have left. If its outcome stayed
// unknown that may be none or all.
func (e effect) wantRows(left int) int {
	switch e.outcome {
	case failed, notApplied:
		return 0
	case unknown:
		return min(left, 1) * e.rows
	}
	return e.rows
}

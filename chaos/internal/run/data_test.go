package run

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// onDataOf is a workload with its own Prepare and Check.
type onDataOf struct {
	code
	prepare func(ctx context.Context, db *pgxpool.Pool) error
}

func (w onDataOf) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	if w.prepare == nil {
		return nil
	}
	return w.prepare(ctx, db)
}

// A workload that ignores its context, or keeps a connection of the pool, affects no run
// but its own.
func TestRun_EndsWhateverPrepareAndCheckDo(t *testing.T) {
	t.Parallel()
	l := environment.NewServers()
	defer func() { require.NoError(t, l.Close(context.Background())) }()
	let := make(chan struct{})
	defer close(let)
	hang := func(context.Context, *pgxpool.Pool) error { <-let; return nil }
	keep := func(ctx context.Context, db *pgxpool.Pool) error {
		conn, err := db.Acquire(ctx)
		if err == nil {
			go func() { <-let; conn.Release() }()
		}
		return err
	}
	goexit := func(context.Context, *pgxpool.Pool) error { runtime.Goexit(); return nil }
	usual, short := environment.UsualBounds, environment.UsualBounds
	short.Grace, short.Data = time.Second, time.Second // only for what hangs
	run := func(prepare, check func(context.Context, *pgxpool.Pool) error, bounds environment.Bounds) (*result.Run, error) {
		w := onDataOf{code{name: passer.name, operate: passer.operate, check: check}, prepare}
		return task{scenario: scenario.Scenario{Name: "calm"}, workload: w, group: result.Fenced, seed: 1, bounds: bounds}.run(patient(t), l, t.TempDir())
	}
	for says, prepare := range map[string]func(context.Context, *pgxpool.Pool) error{
		"it hangs: Prepare has not returned 1s after the end of its context": hang,
		"Prepare ended its goroutine":                                        goexit,
	} {
		bounds := usual
		if strings.HasPrefix(says, "it hangs") {
			bounds = short
		}
		_, err := run(prepare, nil, bounds)
		require.ErrorIs(t, err, workload.ErrWorkload)
		require.ErrorContains(t, err, says)
	}
	r, err := run(nil, goexit, usual)
	require.NoError(t, err)
	require.Equal(t, result.Violated, r.Verdict, r.Reason)
	require.Contains(t, r.Failed, "Check ended its goroutine")
	r, err = run(nil, hang, short)
	require.NoError(t, err)
	require.Equal(t, result.Violated, r.Verdict, r.Reason)
	require.Contains(t, r.Wrong, "it hangs: Check has not returned 1s after the end of its context")
	require.Empty(t, r.Failed) // it has said nothing of the data
	r, err = run(nil, keep, usual)
	require.NoError(t, err)
	require.Empty(t, r.Failed)
}

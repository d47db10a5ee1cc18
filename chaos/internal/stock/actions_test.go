package stock

import (
	"errors"
	"runtime"
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/stretchr/testify/require"
)

// An operation does what its script chooses, or else what its seed decides.
func TestStock_ActionIsChosen(t *testing.T) {
	op := workload.Op{ID: "w0.1", Resource: QuickResources[0], Seed: 3}
	own, chosen := Stock{}.order(op), op
	chosen.Action = "all"
	require.Contains(t, Actions, own.action)
	require.NotEqual(t, "all", own.action)
	require.Equal(t, "all", Stock{}.order(chosen).action)
	require.Equal(t, own.quantity, Stock{}.order(chosen).quantity)
}

func TestStock_RejectsAnUnknownAction(t *testing.T) {
	err := Stock{}.Operate(t.Context(), nil, workload.Op{ID: "w0.1", Resource: QuickResources[0], Action: "give away"})
	require.ErrorIs(t, err, workload.ErrConfig)
	require.ErrorContains(t, err, `"give away"`)
}

// However the function ends, apart returns how.
func TestApart_SaysHowItEnded(t *testing.T) {
	boom := errors.New("boom")
	require.NoError(t, apart(func() error { return nil }))
	require.ErrorIs(t, apart(func() error { return boom }), boom)
	require.Equal(t, "panicked", workload.ClassOf(apart(func() error { panic(boom) })))
	require.Equal(t, "goroutine ended", workload.ClassOf(apart(func() error { runtime.Goexit(); return nil })))
}

// Operations never choose an action that is for scripts alone.
func TestStock_MisusesNothingByItself(t *testing.T) {
	for seed := range uint64(500) {
		require.Contains(t, Actions, Stock{}.order(workload.Op{ID: "w0.1", Resource: QuickResources[0], Seed: seed}).action)
	}
}

func TestOp_DecidesTheSameForTheSameSeed(t *testing.T) {
	op := workload.Op{ID: "w0.1", Resource: QuickResources[0], Seed: 3}
	require.Equal(t, Stock{}.order(op), Stock{}.order(op))
	require.Equal(t, op.Rand().Uint64(), op.Rand().Uint64())
	other := op
	other.Seed = 4
	require.NotEqual(t, op.Rand().Uint64(), other.Rand().Uint64())
}

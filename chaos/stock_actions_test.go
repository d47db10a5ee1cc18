package chaos

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A script chooses what an operation does, and the operation itself what it does
// otherwise.
func TestStock_ActionIsChosen(t *testing.T) {
	op := Op{ID: "w0.1", Resource: stockResources[0], Seed: 3}
	own, chosen := Stock{}.order(op), op
	chosen.Action = "all"
	require.Contains(t, actions, own.action)
	require.NotEqual(t, "all", own.action)
	require.Equal(t, "all", Stock{}.order(chosen).action)
	require.Equal(t, own.quantity, Stock{}.order(chosen).quantity)
}

func TestStock_RefusesAnUnknownAction(t *testing.T) {
	err := Stock{}.Operate(t.Context(), nil, Op{ID: "w0.1", Resource: stockResources[0], Action: "give away"})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, `"give away"`)
}

// However a function ends, whoever waits for it learns of it.
func TestApart_SaysHowItEnded(t *testing.T) {
	boom := errors.New("boom")
	require.NoError(t, apart(func() error { return nil }))
	require.ErrorIs(t, apart(func() error { return boom }), boom)
	require.Equal(t, "panicked", classOf(apart(func() error { panic(boom) })))
	require.Equal(t, "goroutine ended", classOf(apart(func() error { runtime.Goexit(); return nil })))
}

// Each action that is there for scripts alone is one that an operation never takes by
// itself.
func TestStock_MisusesNothingByItself(t *testing.T) {
	for seed := range uint64(500) {
		require.Contains(t, actions, Stock{}.order(Op{ID: "w0.1", Resource: stockResources[0], Seed: seed}).action)
	}
}

package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/patroni"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// One fault is enough to show that the command works: ./test/failover has all of them.
func TestWalk_LosesNothingInSynchronousMode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // hangs no longer
	defer cancel()
	s, err := start(ctx, true)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.stop()) }()
	s.describe()
	require.NoError(t, s.walk(ctx, []patroni.Fault{patroni.SwitchedOver}))
	f, err := s.count(ctx)
	require.NoError(t, err)
	require.Positive(t, f.acknowledged)
	require.Empty(t, f.lost)
	require.Zero(t, f.oversold)
}

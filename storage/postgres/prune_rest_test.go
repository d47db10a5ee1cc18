package postgres_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// A prune rests for as long as each transaction took, but for the last, and an
// interrupt ends the rest.
func TestPrune_Rests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, n := time.Now(), 0
		require.NoError(t, postgres.InTurns(t.Context(), func() (more bool, err error) {
			time.Sleep(time.Second)
			n++
			return n < 3, nil
		}))
		require.Equal(t, 5*time.Second, time.Since(began))

		ctx, cancel := context.WithCancel(t.Context())
		began = time.Now()
		err := postgres.InTurns(ctx, func() (more bool, err error) {
			time.Sleep(time.Second)
			time.AfterFunc(time.Second/2, cancel)
			return true, nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 3*time.Second/2, time.Since(began))
	})
}

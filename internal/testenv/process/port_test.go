package process

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReservePort_IsExclusiveUntilReleased(t *testing.T) {
	p, err := ReservePort()
	require.NoError(t, err)
	seen := map[int]bool{p.Number: true}
	for range 200 {
		other, err := ReservePort()
		require.NoError(t, err)
		defer other.Release()
		require.False(t, seen[other.Number])
		seen[other.Number] = true
	}
	require.NoError(t, p.Release())
	require.NoError(t, p.Release())
}

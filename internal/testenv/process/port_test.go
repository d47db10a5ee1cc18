package process

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReservePort_IsExclusiveUntilReleased(t *testing.T) {
	p, err := reservePort()
	require.NoError(t, err)
	seen := map[int]bool{p.number: true}
	for range 200 {
		other, err := reservePort()
		require.NoError(t, err)
		defer other.release()
		require.False(t, seen[other.number])
		seen[other.number] = true
	}
	require.NoError(t, p.release())
	require.NoError(t, p.release())
}

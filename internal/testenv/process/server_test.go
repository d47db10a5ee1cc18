package process

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReservePort_IsExclusiveUntilItIsClosed(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		port, err := reservePort()
		require.NoError(t, err)
		defer port.Close()
		require.False(t, seen[port.LocalAddr().String()])
		seen[port.LocalAddr().String()] = true
	}
}

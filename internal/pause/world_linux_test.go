package pause_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pipe with room for a whole dump would stop nothing.
func TestStopTheWorld_PipeIsFullAtOnce(t *testing.T) {
	w := startWorker(t)
	w.tell("stop")
	stop := w.next()
	held, err := stop.Held()
	require.NoError(t, err)
	require.Less(t, held, os.Getpagesize()) // Next has read a byte
	require.NoError(t, stop.Resume())
}

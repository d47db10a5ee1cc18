package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/child"
)

// A directory is free once its suite has ended, also while a child process that is being started
// still has its descriptor.
func TestOccupy_FreesADirectoryThatAChildStillHas(t *testing.T) {
	dir := t.TempDir()
	free, err := occupy(dir)
	require.NoError(t, err)
	child.Inherit(t, dir)
	require.NoError(t, free())
	free, err = occupy(dir)
	require.NoError(t, err)
	require.NoError(t, free())
}

package child

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Inherit duplicates the descriptor of a file that this process has open, until the test ends: a
// child process that is being started has such a one until it executes its program.
func Inherit(t testing.TB, path string) {
	t.Helper()
	fd, err := syscall.Dup(descriptor(t, path))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Close(fd)) })
}

// descriptor returns the descriptor of an open file.
func descriptor(t testing.TB, path string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, entry := range entries {
		if target, _ := os.Readlink(filepath.Join("/proc/self/fd", entry.Name())); target == path {
			fd, err := strconv.Atoi(entry.Name())
			require.NoError(t, err)
			return fd
		}
	}
	require.FailNow(t, path+" is not open")
	return 0
}

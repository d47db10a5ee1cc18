package testenv

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// sharedMemory are the System V segments of an owner's servers.
func sharedMemory(t *testing.T, roots []string) (ids []int) {
	t.Helper()
	for _, root := range roots {
		text, err := os.ReadFile(filepath.Join(root, "data", "postmaster.pid"))
		if os.IsNotExist(err) {
			continue // another server's, or a container's
		}
		require.NoError(t, err)
		fields := strings.Fields(strings.Split(string(text), "\n")[6])
		id, err := strconv.Atoi(fields[1])
		require.NoError(t, err)
		require.True(t, sharedMemoryExists(id))
		ids = append(ids, id)
	}
	return ids
}

func sharedMemoryExists(id int) bool {
	var segment unix.SysvShmDesc
	_, err := unix.SysvShmCtl(id, unix.IPC_STAT, &segment)
	return err == nil
}

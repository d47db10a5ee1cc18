package pause

import (
	"bytes"
	"fmt"
	"os"
)

// Stopped reports whether a process is stopped by a signal.
func Stopped(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	// The state follows the name, which stands in parentheses and may hold any.
	_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if !found || len(rest) == 0 {
		return false, fmt.Errorf("pause: /proc/%d/stat is not understood: %q", pid, stat)
	}
	return rest[0] == 'T', nil
}

//go:build !linux

package pause

import (
	"fmt"
	"os/exec"
	"strings"
)

// Stopped reports whether a process is stopped by a signal.
func Stopped(pid int) (bool, error) {
	out, err := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(pid)).Output()
	if err != nil {
		return false, fmt.Errorf("pause: ps: %w", err)
	}
	return strings.HasPrefix(strings.TrimSpace(string(out)), "T"), nil
}

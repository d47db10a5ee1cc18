package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that started it ends, and keeps the terminal's
// Ctrl-C from it.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true
}

// isStopped reports whether every thread of the process is in state T.
func isStopped(pid int) (bool, error) {
	stats, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	if err != nil || len(stats) == 0 {
		return false, err
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return false, nil // a thread ended while we looked: look again
		}
		if err != nil {
			return false, err
		}
		// The command name, in parentheses, may contain anything.
		if _, rest, ok := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " "); !ok || rest[0] != 'T' {
			return false, nil
		}
	}
	return true, nil
}

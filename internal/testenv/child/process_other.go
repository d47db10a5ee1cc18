//go:build unix && !linux

package child

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent keeps the terminal's Ctrl-C from the child. There is no death signal here: the janitor of
// package process ends it.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

func isStopped(pid int) (bool, error) {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return strings.HasPrefix(strings.TrimSpace(string(out)), "T"), err
}

//go:build unix && !linux

package child

import (
	"os/exec"
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

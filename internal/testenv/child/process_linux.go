package child

import (
	"os/exec"
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

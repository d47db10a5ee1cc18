package fencectl

import "syscall"

// dieWithParent has the system kill the command when fencectl is killed.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

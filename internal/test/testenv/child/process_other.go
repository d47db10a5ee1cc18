//go:build unix && !linux

package child

import "syscall"

// There is no death signal here: the janitor of package process ends servers.
func dieWithParent(*syscall.SysProcAttr) {}

package etcdserver

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

// role is the role of a child that runs etcd with its arguments as flags.
const role = "etcd"

// slowDiskVar names the file that says how long each fdatasync of the child takes.
const slowDiskVar = "TESTENV_FDATASYNC_DELAY"

// Roles are what children of this binary may be started to be.
func Roles() map[string]func() {
	return map[string]func(){role: func() {
		if path := os.Getenv(slowDiskVar); path != "" {
			if err := slowDisk(path); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		etcdmain.Main(os.Args)
		os.Exit(0)
	}}
}

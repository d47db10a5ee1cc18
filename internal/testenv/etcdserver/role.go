package etcdserver

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

// role is the role of a child that runs etcd with its arguments as flags.
const role = "etcd"

// Roles are what children of this binary may be started to be.
func Roles() map[string]func() {
	return map[string]func(){role: func() {
		etcdmain.Main(os.Args)
		os.Exit(0)
	}}
}

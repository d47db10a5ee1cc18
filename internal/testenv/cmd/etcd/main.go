// Command etcd is the etcd server of the version in go.mod, built from source
// for the image that "make images" makes.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }

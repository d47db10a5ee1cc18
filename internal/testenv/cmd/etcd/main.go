// Command etcd is the etcd server of the version in go.mod, as tests and "make images" run it. Beside what etcd
// itself takes it has two commands, which no other build of etcd knows:
//
//	etcd slow-disk FILE FLAGS...    serves; each fdatasync takes as long as the file says
//	etcd restore SNAPSHOT DIR NAME PEER-URL CLUSTER BUMP    is "etcdutl snapshot restore"
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.uber.org/zap"
)

func main() {
	if len(os.Args) < 2 {
		etcdmain.Main(os.Args)
		return
	}
	var err error
	switch args := os.Args[2:]; os.Args[1] {
	case "restore":
		err = restore(args)
	case "slow-disk":
		if err = errors.New("which file says how slow?"); len(args) > 0 {
			err = slowDisk(args[0])
			os.Args = append(os.Args[:1], args[1:]...)
		}
		if err == nil {
			etcdmain.Main(os.Args)
		}
	default:
		etcdmain.Main(os.Args)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "etcd: %v\n", err)
		os.Exit(1)
	}
}

// restore makes the data directory of a member from a snapshot. With a bump above 0 revisions begin that much
// higher than in the snapshot, and all before are marked as compacted.
func restore(args []string) error {
	if len(args) != 6 {
		return errors.New("restore takes SNAPSHOT DIR NAME PEER-URL CLUSTER BUMP")
	}
	bump, err := strconv.ParseUint(args[5], 10, 64)
	if err != nil {
		return err
	}
	return snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: args[0], OutputDataDir: args[1],
		Name: args[2], PeerURLs: []string{args[3]},
		InitialCluster: args[4], InitialClusterToken: "etcd-cluster",
		RevisionBump: bump, MarkCompacted: bump > 0,
	})
}

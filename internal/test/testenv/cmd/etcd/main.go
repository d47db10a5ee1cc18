// Command etcd is the etcd server of the version in its go.mod, as tests and "make images" run it. Beside what etcd
// itself takes it has a command that no other build of etcd knows:
//
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
	if len(os.Args) < 2 || os.Args[1] != "restore" {
		etcdmain.Main(os.Args)
		return
	}
	if err := restore(os.Args[2:]); err != nil {
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

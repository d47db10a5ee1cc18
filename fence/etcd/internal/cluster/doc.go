// Package cluster is etcd as one Locker sees it: its client, what is wrong with it
// when a request fails, and whether it shows an older state than before, as after a
// restore from a backup.
package cluster

// Package observe observes a chaos run without Fencekit under test: the holders of lock
// keys by a watch of etcd, the order of commits by PostgreSQL's logical decoding, and the
// data at the end.
//
// # Model
//
// An Observation is everything observed of one run. Locks has a gap if the watch missed
// anything, and then proves nothing. Commits come from the write-ahead log: their order is
// the order in which transactions of one resource took effect, since the fence's row is
// locked until after the commit record.
//
// # What is not promised
//
// Between resources the order of commit records is not the order in which commits
// became visible.
package observe

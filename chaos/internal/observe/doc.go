// Package observe sees what a chaos run did without asking the framework that is
// tested: who held which lock key, by a watch of etcd; in which order what was
// committed, by PostgreSQL's logical decoding; and what is in the data at the end.
//
// # Model
//
// An Observation is all that was seen of one run. Locks has a gap if the watch
// missed anything, and then shows nothing. Commits come from the write-ahead log:
// their order is the order in which transactions of one resource took effect,
// since the fence's row is locked until after the commit record.
//
// # What is not promised
//
// Between resources the order of commit records is not the order in which commits
// became visible.
package observe

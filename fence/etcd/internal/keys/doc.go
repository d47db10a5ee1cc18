// Package keys names the keys of a Locker in etcd, and reads and writes what they
// hold: the lock keys of a queue, the void keys of a session, and the epoch key.
package keys

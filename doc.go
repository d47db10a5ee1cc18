// Package fencekit is the root of Fencekit: writes to Postgres under a lock in
// etcd, refused when the lock has passed to someone else. It holds no code; begin
// with package guard, and package fence for the vocabulary. The example shows how
// the pieces are put together.
package fencekit

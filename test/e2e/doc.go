// Package e2e has tests that run the whole of Fencekit against real servers: what an
// outage of etcd or Postgres, a restore, an election or a raised epoch does to callers of
// package guard.
package e2e

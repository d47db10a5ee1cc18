// Package failover has the test that takes the primary of a Postgres under Patroni away, again
// and again, while processes write through package guard: what is lost, what is named, and what
// etcd's Mutex without a fence does under the same schedule.
package failover

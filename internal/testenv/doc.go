// Package testenv runs a real etcd and a real Postgres for tests, the demo and
// chaos runs, on the loopback.
package testenv

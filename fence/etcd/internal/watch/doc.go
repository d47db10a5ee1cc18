// Package watch watches the queues that one Locker has keys in or observes, all over one
// gRPC stream.
package watch

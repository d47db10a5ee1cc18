// Package watch follows queues of lock keys, all of one Locker's over one gRPC stream.
package watch

// Package watch shows what happens in queues of lock keys: all that one Locker
// follows, over one gRPC stream.
package watch

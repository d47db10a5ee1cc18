// Package queue acquires and releases locks: it writes one key per acquisition into
// the queue of a resource, waits until it is the first, and sees to it that none is
// left behind. See the package comment of fence/etcd for the model.
package queue

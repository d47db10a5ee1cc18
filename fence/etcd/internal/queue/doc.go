// Package queue acquires and releases locks: it writes one key per acquisition into the
// queue of a resource, waits until that key is the first, and removes it in the end,
// whatever failed. See the package comment of fence/etcd for the model.
package queue

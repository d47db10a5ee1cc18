// Package session manages the lease in etcd under which all keys of a Locker live: it
// creates the lease when one is needed, renews it, and replaces it when it was lost.
package session

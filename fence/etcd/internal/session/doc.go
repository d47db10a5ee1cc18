// Package session keeps the lease in etcd under which all keys of a Locker live: it
// is made when it is needed, renewed, and replaced when it was lost.
package session

// Package storage defines what a store implements, and what it keeps: the fences of
// resources, the history of their moves, and the rejections. Stores import this package and
// not package guard, which runs transactions in them. Code that uses a Guard needs it only
// to read the history, to choose a shard or to name a type.
//
// Package storage/postgres is the store for production, storage/memory the reference;
// package guard/guardtest holds the contract that every store has to pass.
package storage

// Package storage is what a store implements, and what it keeps: the fences of
// resources, the history of what moved them, and the rejections. Stores import it and
// not package guard, which runs transactions in them. Who uses a Guard needs this
// package only to read the history or to name a guard's types.
//
// Package storage/postgres is the store for production, storage/memory the reference;
// package guard/guardtest holds the contract that every store has to pass.
package storage

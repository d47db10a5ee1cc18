// Package control holds ways to lock that people publish and that lose updates
// under the very faults that Fencekit stands. A chaos run that leaves one of them
// unharmed has shown nothing about Fencekit either.
//
// # Model
//
// A Control is a recipe: it opens a Lock, with clients of its own, as one process
// does. Do and Hold run work under a Lock the way such code is written: acquire,
// BEGIN, work, the recipe's own check if it has one, COMMIT, release. The recipes
// are written as their authors write them, with well-kept libraries, and each has
// the one flaw that Control.Flaw names; what is careless beside the flaw (a
// value that isn't unique, a delete that doesn't ask) is part of it.
//
//   - no-lock and check-without-lock are red by design, without any fault.
//   - redis-setnx-expire loses its life, not an update: nobody gets the lock again.
//   - All others exclude each other, and lose no update, while no fault strikes.
//
// Where a flaw opens only between two steps of a recipe, the recipe says so as it
// passes (Servers.At), and a fault that has to strike there can.
//
// # What is not promised
//
// These locks are for chaos runs, never for use. A recipe takes no more care of
// contexts than the code it shows: etcd's Mutex may go on for as long as etcd is
// away, and go-redis for its own time limits. They make keys below "control/" and
// the tables that Control.Prepare makes, and leave there what a process left that
// was killed.
package control

// Package control has the controls of chaos runs: locking recipes, most of them published,
// that lose updates under faults that Fencekit survives. A chaos run in which a control survives is
// inconclusive.
//
// # Model
//
// A Control is a recipe: it opens a Lock, with its own clients, as one process does. Do and
// Hold run work under a Lock the way such code is written: acquire, BEGIN, work, the recipe's
// own check if it has one, COMMIT, release. The recipes are written as their authors write
// them, with well-kept libraries, and each has the one flaw that Control.Flaw names;
// carelessness that the flaw needs (a value that isn't unique, an unconditional delete) is
// part of it.
//
//   - no-lock and check-without-lock are red by design, without any fault.
//   - redis-setnx-expire loses no update: its lock can't be acquired any more.
//   - group-matching and group-rerun run the work of several calls in one transaction, and
//     break one rule of the protocol's groups each (docs/protocol.md). group-rerun
//     loses no update: its operations take effect twice.
//   - All others exclude each other, and lose no update, without a fault.
//
// If a recipe breaks only between two of its steps, it reports that point (Servers.At), so
// that a fault can be injected there.
//
// # What is not promised
//
// These locks are for chaos runs, never for use. A recipe handles contexts no better than the
// code that it copies: etcd's Mutex may block while etcd is unavailable, and go-redis for its
// own time limits. Recipes create keys below "control/" and the tables of Control.Prepare, and
// don't clean up after a process that was killed.
package control

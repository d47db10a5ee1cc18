// Package memory is the reference [storage.Store]: fences, history and a small
// key-value map in the memory of this process. It is there for tests, which it
// makes instant, and to be read: each step of the protocol is a few lines.
//
// # Model
//
// A resource has one fence: the grant that it was raised to and a
// [storage.Position]. Claims, seals and voids are the only moves. Each takes the
// next position, under one lock, and writes the history entry of that position.
//
//   - G1: [Store.Claim] has moved the fence when it returns.
//   - G2: a seal moves the fences of all its claims, if each is exactly where its
//     claim says: grant, sequence number and transaction. Otherwise none moves.
//   - G3 follows: a claim takes a position, so no earlier claim fits any more.
//   - G4: [Store.Resolve] takes the position that a doubtful seal was to take, or
//     finds it taken and looks by whom. Whoever comes second is rejected.
//   - G5: a rejection is counted in a record of its own and never moves a fence.
//
// Transactions read what is committed at the moment of the read, and their own
// writes. Nothing blocks: of two transactions that overlap, the seal of the second
// is rejected.
//
// # Faults
//
// [Store.SetFaults] makes replies get lost and COMMITs arrive late, so that what
// is built on a store can be shown to cope.
//
// # What is not promised
//
// Nothing outlives the process, and processes don't share a Store.
package memory

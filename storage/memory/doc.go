// Package memory is the reference [storage.Store]: fences, history and a small key-value
// map in the memory of this process. It makes tests instant, and it is the protocol in its
// shortest form: each step is a few lines.
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
//   - G3 follows: a claim takes a position, so no earlier claim matches the fence any more.
//   - G4: [Store.Resolve] takes the position that the seal in doubt was to take, or finds
//     it taken and reads by which transaction. Of the two moves the later one is rejected.
//   - G13: a read-only transaction moves nothing. Its Commit checks, when everything has been
//     read, that each fence is exactly where its claim says.
//   - G5: a rejection is counted in a record of its own and never moves a fence.
//
// Transactions read what is committed at the moment of the read, and their own writes.
// Nothing blocks: of two overlapping transactions of one resource, the later seal is
// rejected.
//
// # Faults
//
// [Store.SetFaults] loses replies and delays COMMITs, to test that code built on a store
// copes with both.
//
// # What is not promised
//
// Nothing outlives the process, and processes don't share a Store.
package memory

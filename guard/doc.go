// Package guard runs database transactions under fencing tokens: a process that was
// paused, cut off or is late can't change data after another has taken over.
//
// A database keeps a fence for each resource: the grant that has it, and a position,
// which each claim, commit or void of an unknown outcome moves by one.
//
//   - G1: no function runs under a grant before the grant's claim has committed.
//   - G2: a transaction commits only if each fence is where its grant left it.
//   - G3: after a claim no transaction of an earlier grant commits, and what is read
//     under the claim includes all that earlier ones committed.
//   - G4: an operation takes effect at most once; if [Do] returns nil, it did. After any
//     error but [ErrUnknownOutcome] and [ErrTxEnded] it did not and never will.
//   - G5: each rejection is recorded; a stale one has an earlier, higher claim.
//   - G6: transactions of one grant are serial; none starts while one is in doubt.
//
// Not promised: exclusive effects outside the transaction, rejection of an older
// holder's writes before the claim, recovery of what the database lost. Argument
// and configurations: docs/protocol.md, docs/guarantees.md.
package guard

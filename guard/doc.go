// Package guard runs database transactions under fencing tokens, so that a lock
// holder that was paused, cut off or is simply late never changes data after
// another holder has taken over. The lock is the courtesy, the fence in the
// database is the safety.
//
// # Model
//
// A database keeps a fence per resource: the grant that it was raised to, and a
// [Position] that counts its moves. A [Guard] gets a grant from a [fence.Locker],
// claims it in a [Store], and then runs transactions under that [Claim]. Claims,
// the seals of transactions and the voids of doubtful ones all compete for the
// fence's next position, and each names the position that it comes from: who is
// late is refused, whatever his token.
//
// # Invariants
//
//   - G1, claim before run: no function runs under a grant until its claim is
//     known to have committed.
//   - G2, seal at commit: a transaction commits only if the fence is exactly where
//     its grant left it. The commit moves it on by one position and writes the
//     history entry of that position.
//   - G3, from both: once the claim of a grant has committed, no transaction of an
//     earlier one commits, and everything read under it sees all that the earlier
//     ones committed.
//   - G4: an operation takes effect at most once. If [Do] returns nil it did; if it
//     returns an error it did not and never will, with two exceptions:
//     [ErrUnknownOutcome], which is returned only while the database can't be
//     asked, and [ErrTxEnded], as what a raw COMMIT in user code wrote stays.
//   - G5: a rejection is recorded, and one as stale is justified by an earlier claim
//     of a higher grant.
//   - G6: transactions of one grant are serial, and none starts in a Guard while an
//     earlier one is unresolved.
//
// # When something fails
//
// The lock service can't be reached: calls that own the resource already go on,
// others fail. The lease is lost: a running function's context ends; whether its
// work may commit is for the fence to decide, and it may if no newer holder has
// claimed. The database rejects a grant: the call fails with a [*RejectedError], and
// the next one gets a new grant. The reply to COMMIT is lost: the call asks what
// became of it, and voids it if it has not arrived. If the database can't be asked
// the call returns an [*UnknownOutcomeError], and the next call for the resource
// begins by asking.
//
// # Waiting
//
// Calls for one resource wait in one line per process and resource, in order of
// arrival. Ownership is kept from call to call ([Config].KeepFor), and passed on
// soon when another process waits ([Config].MaxHold). A Guard needs no goroutine
// per resource or call: only a release has one, since it goes on for up to 5 s when
// the context of the call that it follows has ended.
//
// # What is not promised
//
// Fencing covers what is written through the transaction, in the database that
// keeps the fence. It doesn't make other side effects exclusive. It can't stop an
// older holder's writes before the claim of the newer one, and can't bring back
// what the database itself has lost. It is not needed for one atomic statement, a
// row that may stay locked for the whole decision, or SERIALIZABLE with retries.
//
// A function that calls its own Guard with another context than the one it was
// given waits for itself until that context ends, and two such functions may wait for
// each other. A leader that calls Do for the resource that it leads waits for itself
// as well: see [Guard.UnderLease].
package guard

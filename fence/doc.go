// Package fence holds the vocabulary of fencing: tokens, grants, leases and the
// lock service that hands them out. It imports the standard library only, so a
// service that merely carries or checks a grant links nothing else.
//
// # Model
//
// A [Locker] grants a resource to one holder at a time. Each [Grant] carries a
// [Token], the fencing token: a number that is higher than that of every earlier
// grant of the same resource. A [Lease] is the holder's live side of a grant: it
// can be released, and it can be lost.
//
// # Invariants
//
//   - F1: tokens granted for one resource strictly increase in grant order. When
//     the lock service was restored from a backup its numbers can go back; the
//     [Grant.Epoch] orders grants across such restores, so grants are compared
//     by (epoch, token), see [Grant.Compare].
//   - F2: at most one live lease per resource is the owner in the lock service.
//     Two acquisitions never share a token, also inside one process, and never a
//     holder: [Grant.Holder] ends in a nonce that is fresh for each acquisition.
//   - F3: losing the lock ends [Lease.Context] with a [*LeaseLostError] as its
//     cause, no later than the holder's own conservative deadline: the time at
//     which the last successful renewal was sent, plus the granted time to live,
//     minus a margin.
//
// # What is not promised
//
// F3 is advisory. A process that is paused (garbage collection, SIGSTOP, a migrating
// virtual machine) can't notice anything while it stands still, and it runs on for a moment
// after it resumes. So no write may rely on the lease alone: the database has to reject the
// late write. Package guard and its stores do that.
package fence

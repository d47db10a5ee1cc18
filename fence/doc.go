// Package fence is the vocabulary of fencing: tokens, grants, leases and the lock service that grants them. It
// imports the standard library only.
//
// A [Locker] grants a resource to one holder at a time. Each [Grant] carries a [Token], which is higher than those
// of all earlier grants of the resource. A [Lease] is the holder's live side of a grant: it can be released or
// lost.
//
//   - F1: tokens of one resource strictly increase. A lock service that was restored from a backup may repeat some,
//     so grants are compared by (epoch, token): [Grant.Compare].
//   - F2: at most one live lease of a resource is the owner. Two acquisitions never share a token or a holder, also
//     inside one process.
//   - F3: losing the lock ends [Lease.Context], with a [*LeaseLostError] as its cause, no later than the time at which the last successful renewal was
//     sent, plus the granted time to live, minus a margin. [Lease.Err], and Err and Done of the context itself, compare
//     the time when they are called.
//
// F3 is advisory: a paused process notices nothing, and when it resumes it runs on until it asks. A channel that was
// taken from Done before the pause, and contexts derived from the lease's, may end a moment late, since a timer ends
// them. So the database has to reject the late write, which is what package guard and its stores do.
package fence

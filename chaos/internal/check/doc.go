// Package check judges a chaos run by its history and by what was observed of it,
// property by property.
//
// # Properties
//
//   - I1: per resource, accepted tokens never fall in the order of the write-ahead
//     log, which is the order of positions, and positions have no gaps.
//   - I2: conservation. Nothing is sold twice, nothing is oversold, and every
//     operation decided on what the one before it left.
//   - I3: an operation takes effect at most once; one that was acknowledged once,
//     one that failed never, and what an unknown one was said to have become it became.
//   - I4: every acknowledged operation is there at the end.
//   - I5: claims and writes are linearizable as operations on a fenced register,
//     and after a claim nothing of a lower token commits.
//   - I6: every refusal as stale is justified by a claim of a higher token that
//     committed before the refusal was returned.
//   - I7: every accepted token was the create revision of a lock key of that very
//     resource, and equal tokens had one lease.
//   - I8: the framework's history, the workers' and the write-ahead log agree, and
//     refusals that workers saw were recorded.
//   - I9: once the faults are over every resource makes progress within a bound,
//     and no lock key is left when everybody has closed.
//   - I10: no change of guarded data is without an entry of the same transaction
//     in the framework's history.
//   - I11: the run met what it was meant to meet.
//   - I12: whoever was granted a lock was the first of its queue: every lock key that
//     was there before had gone by the time its own went.
//
// # How
//
// The order of commits is that of the write-ahead log (observe.Commit), which
// shows the entries of the framework's history and the rows of the built-in
// workload by transaction. What has no answer is settled by the data: it is there
// or it isn't. Times of the history are used as bounds only, of what was told
// before or after something.
//
// Of a control there are I2, I3, I4, I9, how its run ended and the workload's own check. Of a
// workload whose data only it knows there are none of I2, I3, I4 and I10.
//
// # What is not promised
//
// I6 takes a refusal for justified if the claim that it names may have committed
// before it was told; the instant of a commit can't be known from outside. I8
// doesn't verify the chain of hashes, and excuses a refusal that its worker says
// could not be recorded. I9 doesn't look at who was evicted. I5 looks for an order
// for a bounded time, after which the run is inconclusive.
//
// A Finding that a property held says so of this one run.
package check

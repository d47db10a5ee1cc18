// Package check checks a chaos run, property by property: by its history and by what was
// observed of it.
//
// # Properties
//
//   - I1: per resource, accepted tokens never fall in the order of the write-ahead
//     log, which is the order of positions, and positions have no gaps.
//   - I2: conservation. Nothing is sold twice, nothing is oversold, and every
//     operation decided on what the one before it left.
//   - I3: an operation takes effect at most once: exactly once if it was acknowledged, never
//     if it failed, and as resolved if its outcome was unknown.
//   - I4: the effect of every acknowledged operation is in the data at the end.
//   - I5: claims and writes are linearizable as operations on a fenced register,
//     and after a claim nothing of a lower token commits.
//   - I6: every rejection as stale is justified by a claim of a higher token that
//     committed before the rejection was returned.
//   - I7: every accepted token was the create revision of a lock key of its resource, and
//     equal tokens had one lease.
//   - I8: Fencekit's history, the workers' and the write-ahead log agree, and
//     rejections that workers saw were recorded.
//   - I9: after the faults end every resource makes progress within a bound, and no lock key
//     is left when all workers have closed.
//   - I10: no change of guarded data is without an entry of the same transaction
//     in Fencekit's history.
//   - I11: everything that the scenario requires happened in the run.
//   - I12: a lock is granted only to the first of its queue: every lock key created earlier
//     was deleted before the granted one was.
//   - I13: Fencekit's history verifies (audit.Database.Verify). Entries that a fault has tampered with
//     don't, each of them, and no others.
//
// # How
//
// The order of commits is that of the write-ahead log (observe.Commit), which
// shows the entries of Fencekit's history and the rows of the built-in
// workload by transaction. The data settle an operation without an answer: its effect is
// in them or it isn't. Times of the history are only bounds: an event was recorded before
// or after another.
//
// A control is checked for I2, I3, I4, I9, run and workload alone. A workload other than the
// built-in one is not checked for I2, I3, I4 and I10: only the workload knows its data.
//
// # What is not promised
//
// I6 accepts a rejection if the claim that it names may have committed before the rejection
// was recorded; the instant of a commit can't be known from outside. I8 excuses a
// rejection that Fencekit reports it could not record. I9
// doesn't check evictions. I5 searches for an order for a bounded time, after which the run
// is inconclusive.
//
// A Finding is about one run.
package check

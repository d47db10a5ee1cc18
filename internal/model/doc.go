// Package model is the argument for Fencekit's safety that a machine checks: the
// protocol of docs/protocol.md as a small transition system, run
// through every interleaving of a few clients by breadth-first search. It is
// exhaustive within its bounds and says nothing beyond them. It runs under
// go test and nothing else imports it:
//
//	go test ./internal/model -run TestVariants -v
//
// prints each counter-example and then the table of variants with the number of
// states of each: 5.2 million in all. Larger bounds, explored on demand, are in
// BenchmarkClaimSeal_LargerBounds, BenchmarkOrder_LargerBounds and
// BenchmarkRows_LargerBounds.
//
// # Four models
//
// [Textbook] is the fence that articles describe: one number, the highest token
// seen (rows M0 to M11). M2 beside M2b is the reason for
// everything else: an update is lost while the log of tokens is in perfect
// order. So the models judge data, by an oracle that counts effects and never
// looks at the fence.
//
// [ClaimSeal] is the protocol: rows P are bounds and faults within which it
// holds, rows B are the same protocol with one thing broken, and each of them
// fails. The protocol, sentence by sentence:
//
//   - A claim moves the fence row (token, holder, position, transaction) on to a
//     higher token, rejects a lower one and an equal one of another holder, and
//     answers the holder's own again without moving; only then does user code run
//     (G1).
//   - A COMMIT carries a seal: it takes effect only if the row is exactly what the
//     grant last saw, and then moves it on by one position; several resources are
//     sealed in one transaction, all or none (G2, G3, G6).
//   - A client that gets no reply voids the position that it wanted, by the same
//     compare-and-move, or else reads whose entry has it (G4).
//   - A rejection is named by what the fence shows (G5).
//
// And of operations that have keys (guard.Once): a client looks the key up under
// its claim, outside the transaction that follows. If it is there, and the fences are
// where the claim left them on the same timeline, the answer kept with the key is
// given. If not, the operation runs, and its key is kept for
// each of its resources in its own transaction.
//
// And of groups, whose members share a transaction: a member fails alone or takes effect
// with the others, and is answered when the outcome is known. If the group did not take
// effect, its members may run again, each in a transaction of its own, after another look
// for their keys. Members may be about different resources, each of which is sealed.
// Resources may be claimed in one transaction, with a verdict for each.
//
// And of operations that only read: they move nothing. When all has been read, the client
// compares each fence with what its grant last saw, and is answered only if they are the same.
//
// [Order] is about waiting, not about safety: how calls over several resources take
// turns in their processes and locks among them (guard.Do of several), with ownership that is
// kept until another call waits for it, and leases that are lost at any time and
// acquired anew. Locks may be acquired in one transaction, and operations on different
// resources may form groups. Rows A are its rules, rows AB those with one thing broken.
//
// [Rows] is about waiting inside the database: in which order claims and seals of
// several resources lock rows. Rows R are its rules, rows RB those with one thing broken.
//
// # What is checked
//
// In every reachable state, see [Violation]: the data is what the operations
// that took effect make one after another; no operation took effect twice; what
// was acknowledged took effect, what was denied did not and never will; after a
// claim of t', and after user code has run under t', nothing of an older grant
// takes effect; a rejection as stale has a higher claim before it, one as overtaken another
// client of the grant, and the database is said to have gone back only if it did; no
// function runs again whose caller has not allowed it; no member of a group gets an error
// that rests on what never takes effect; a read-only operation is answered with the data as they
// are at that moment, all of them, and with none that a synchronous standby lacks; and no client is
// left without an answer when nothing more can happen. Calls of one key are one
// operation, over sets of resources that share one; a repeated call's answer is an
// acknowledgement of the call that took effect. What was acknowledged before the
// database itself lost it is excused, but not where a synchronous standby took
// over (P25); nothing else is.
//
// What members wrote that one of them committed by a COMMIT of its own is outside of these,
// except that none takes effect twice: their answer is ErrTxEnded.
//
// Of acquisition, and of row locks: in every reachable state that is not the end, some call
// can go on without anything being lost first. That is freedom from deadlock, not fairness.
//
// # What is modelled
//
// Mutual exclusion is not assumed: any client may be granted a higher token at
// any time, as if every lease were lost at the worst moment. Pauses, delays and
// crashes need no steps, because a step that is possible need not happen. COMMIT
// is a message: it arrives at any later time or never, and its reply may be
// lost. A void's reply and a claim's may be lost. A client may leave a COMMIT in
// doubt for good, because it crashed or couldn't ask for too long, and any client may
// call again. A commit may be seen before the standby has it. Grants travel, tokens are
// issued twice, entries of the history vanish, and the database goes back to an
// earlier state, after which positions are used again: by a failover, which raises
// the server's timeline, or restored from a volume, which doesn't. The begin check's early
// rejection of a superseded grant is optional: the protocol holds with it (P7) and
// without it (P5). Its rejection of a claim of another timeline is not (B24).
//
// # What is abstracted
//
//   - Isolation levels and locks of data rows: a transaction's read happens at any
//     moment between its grant's last word from the database and COMMIT, and its
//     write is blind. No level of Postgres promises less, so none is relied on.
//   - Of acquisition: a lock is a fair queue of processes, its release takes no time,
//     and no time limit helps: no call gives up, nothing that is kept
//     expires, and a function that overruns keeps what it has. Whether contended
//     ownership is used once more (Config.MaxHold) is left open.
//   - A read-only operation reads everything twice, at any two moments, which stands for any
//     number of statements and levels. The one message that it ends with is one step.
//   - The lock of the fence row: claim, seal with commit, and void are one step
//     each. Seals of several resources are one step too, because each stays locked
//     until the end of the transaction; [Rows] has the order in which they are locked.
//   - Eviction and every timeout: they bound waiting (L1) and decide nothing.
//   - etcd: tokens increase (F1), and that is all that is used of it. A token
//     in the model is the pair of epoch and token.
//   - A claim that arrives when its client is long gone is a client that claims and
//     never writes.
//   - When the database goes back, connections die: an open transaction and a
//     COMMIT in flight are gone. So the begin check's comparison of timelines is good for
//     its whole transaction and the seal need not make it again; B25 shows what
//     happens if a transaction survives. None does in PostgreSQL: what began on the
//     standby before its promotion is read-only and has passed no begin check.
//   - Transaction ids are never used twice; B9 shows what happens if they are, as
//     they can be when they are PostgreSQL's own.
//   - What members of a group share: settings, constraint modes, the transaction's time,
//     and its wrapper. Savepoints: a member that fails alone has written nothing. That a
//     member has read what those before it wrote is what its error may rest on.
//   - The hash chain, and rejection entries.
//   - What is kept for Once is never forgotten, and the primary key of its table is
//     not there: the protocol doesn't rely on it. A key's request is the set of
//     resources.
//
// Three things concern those who build on the protocol. When a held grant has to
// claim again, because a sibling or a failover took its position, what it had
// read is void and user code starts over (B23). And what user code has read on
// another connection may be newer than its grant's position: the seal rejects it
// then, but if the database goes back in between, to exactly that position, the
// seal passes. After a failover the begin check rejects it (P18); after a restore of the
// volume nothing does (B22). What is read inside a guarded transaction is safe, and
// so is what the grant's last transaction left (P10, P10r, P11). And the look-up of
// a key is such a read outside: if it took what a sibling has just committed, the answer
// would be of something that a failover or a restore may undo (B27b, B32). So it fails if it
// finds something and the fence isn't where the claim left it (P28); if it then passed for having found
// nothing, the operation would run twice (B33).
//
// # Reading a counter-example
//
// Each line is one atomic step, by whom and what, then the state after it: each
// resource's value beside the number of effects that it should show, its fence,
// and what each client holds and has read. A shortest schedule is printed, so
// every step in it is needed. Below it stands the first step that the unbroken
// protocol does not take in the same schedule.
//
// # Adding a variant
//
// Add a switch to [Mutation] whose zero value is the protocol, use it where the rule is
// that it changes, and add a row to the table with the result that you predict, before you
// run it. Keep the bounds small; a run with more states than
// the limit fails instead of judging. A new step needs a name that tells it from
// the other steps of its state, and a line in the test that every step is
// examined. A new fault belongs in [Faults], and needs a P row in which the
// protocol survives it.
package model

// Package etcd is the lock service of Fencekit on etcd. [NewLocker] makes a
// [Locker], which implements [fence.Locker].
//
// # Model
//
// The queue of a resource is a range of keys, one key per acquisition:
// <prefix>/locks/<escaped resource>/<lease id>-<number>, with the lowest number that no
// other acquisition of the session has in the queue. Its value is a JSON object with the
// holder, the epoch, and when the acquisition began, by the clock of its process. Package
// inspect, "fencectl locks list" and "etcdctl get --prefix fencekit/locks/" show who
// holds and who waits. One transaction writes the key and reads which key of the range was
// the last; the fencing token is the revision of that transaction. The acquisition whose key
// has the lowest create revision of the range owns the resource; keys of its own process whose
// holders have given up don't count. With [Config.MutexKeys] the keys are
// <resource>/<lease id> and the queues are those of etcd's own tools.
//
// All keys of a Locker live under one etcd lease, the session. It is made by the
// first Acquire, renewed every third of its time to live, and replaced when it
// was lost. A process has at most 32 keys in one queue, its quantum: more of its calls wait
// in memory, in order of arrival. With MutexKeys the quantum is one. If no other process's
// key is between two of one process, the resource passes from one call to the next without
// waiting for etcd.
//
// Keys that are written or deleted alone go out at once. Those that come while two
// transactions are under way go together in the next. Two keys of one queue never share a
// transaction, because they would have equal tokens.
//
// All queues in which this Locker waits, or which it observes, are watched over one gRPC
// stream. The queue of a resource that it holds is watched as well, once a caller asks for
// contention or the resource has been held for 100 ms.
//
// An [Election] is the same queue: the owner of the resource of its name leads, and the value
// that it proclaims lies in its lock key. Proclaim requires that the key's mod revision is
// still the one that this leader last wrote. So it fails once the key is gone, even if another
// key of that name exists; and a Proclaim whose answer was lost has no effect after a later
// one that was answered.
//
// # Invariants
//
//   - F1: the token is the key's create revision. If the client sends the transaction that
//     writes it twice, the second put returns that revision.
//   - F2: a session uses a key's name again once no request that is under way can write it.
//     A request that deletes a key names its create revision.
//     While a process passes a resource on among its calls, its keys keep every other process
//     out, and it deletes none before the ones ahead of it. An Acquire whose outcome is unknown
//     is settled by a void, which docs/protocol.md explains.
//   - F3: every lease ends at the session's deadline: the time at which the last
//     successful renewal was sent, plus the time to live that etcd granted, minus
//     a tenth of it as a margin. An answer that comes after the deadline revives nothing.
//
// # How a lease is lost
//
// [fence.LossDeadline]: no renewal succeeded in time; the error says how the last one
// failed. [fence.LossExpired]: etcd says that the session's lease is gone; the next renewal
// or Acquire notices. [fence.LossDeleted]: the lock key was deleted; the watch
// shows this, and one renewal then checks whether the lease still exists.
// [fence.LossWentBack]: see below. [fence.LossClosed]: the Locker was closed. An Acquire that
// loses its queue position while it waits fails with a [*fence.UnavailableError] whose Reason
// is [fence.QueueLost].
//
// A release or an abandoned Acquire that etcd doesn't confirm is repeated in the background
// until etcd does, or until the session is over. What is in doubt keeps its place in the
// quantum, and TryAcquire finds the resource locked. If nothing else needs the session it is
// given up, so that no renewal keeps the leftover keys alive.
//
// Close what uses the locker first, then the locker, then the client. Once the client is
// closed every call fails at once, nothing is tried again, and held locks end at the
// session's deadline.
//
// # When etcd is in trouble
//
// The [*fence.UnavailableError] of the failing call says which of these it is, also where a
// [*fence.LeaseLostError] wraps it.
//
//   - It is away, silent, or without a majority ([fence.Unreachable]): nothing is acquired,
//     held locks end by their own deadline, and waiters lose their queue positions by then.
//     If etcd comes back earlier, nothing is lost.
//   - It elects another leader: leases get their whole time to live again, also those of
//     holders that have died. So elections that come faster than the time to live keep a dead
//     holder's resource taken until it is evicted: see "fencectl locks evict".
//   - A member is cut off from the others: etcd cancels the watches there, and they are set
//     up at another one. A Locker that reaches no other member finds etcd away.
//   - A member, or the network to it, is silent without breaking a connection: the watch
//     stream is probed every 5 s, and goes to the next endpoint when a probe has no answer in
//     that time. Renewals ask a second and a third member while the first has not answered.
//     Other requests fail after 5 s, or Config.TTL if that is shorter, until the client closes
//     the connection: see [ClientConfig].
//   - It is out of space ([fence.NoSpace]): nothing is acquired. Held locks are renewed and
//     released, and calls that are waiting already get their turn.
//   - Its limits are below the defaults: requests for several locks are split until it takes
//     them. If it takes none for one lock ([fence.Limited]), that isn't acquired.
//   - It rejects the client's authentication or denies permission ([fence.Denied]): as if
//     it were away. Expired tokens are replaced. If it denies the right to read a queue,
//     calls that wait in that queue and observers of it fail; a holder can't see then
//     whether others wait, and assumes that they do.
//   - It compacts revisions that a watch has not shown yet: the queue is read instead.
//
// # Rights
//
// With etcd's authentication the role of the client's user needs, for the prefix
// "fencekit":
//
//	etcdctl role grant-permission ROLE readwrite --prefix=true fencekit/locks/
//	etcdctl role grant-permission ROLE readwrite --prefix=true fencekit/void/
//	etcdctl role grant-permission ROLE read fencekit/epoch
//
// With Config.MutexKeys it needs readwrite on <resource>/ of each resource instead
// of the first. Package inspect needs read on <prefix>/locks/ and <prefix>/epoch; to evict,
// readwrite on <prefix>/locks/ and <prefix>/evicted/. "fencectl epoch bump" needs readwrite on
// <prefix>/epoch. A user that may write the epoch key can stop all lockers: only operators
// need to.
//
// # Epochs
//
// After a restore from a backup etcd issues revisions a second time. The key
// <prefix>/epoch, absent for epoch 1, is compared by each acquiring transaction and becomes
// part of the grant. A running Locker that finds the cluster id changed, or raft term,
// revision or epoch lower than before, loses all leases and grants nothing, with the Reason
// [fence.WentBack], until the epoch is raised. A Locker that was started after the restore
// can't notice it. "fencectl epoch bump --reason TEXT" raises the epoch, in every database
// first: one that was in etcd alone would be lost by the next restore, and issued a second
// time. Nothing has to be restarted. An epoch that is raised while an acquisition waits
// doesn't change the grant that the waiter is about to get: package guard acquires another
// one if the database has seen the new epoch by then.
//
// A mistyped number that is far above what any database accepts is lowered by "fencectl
// epoch bump --reason TEXT --trust databases": the key's revision shows that etcd has not
// gone back. Never put a lower number that a database might accept: a grant of the higher
// one, on its way, would then outrank all later ones. Don't delete the key: a missing key
// looks like a restore.
//
// # What is not promised
//
// Give the client the endpoints of etcd's members. Where etcd's grpc-proxy answers in their
// place, locks exclude each other (F2), and [Locker.Check] fails with the Reason [fence.Proxied].
// But the proxy answers renewals with the latest answer that it has got. So a lease's deadline
// (F3) is late by as long as etcd's answer took to reach the proxy, which the margin has to
// cover, and a holder that stops with its connection open keeps its locks for up to twice
// the time to live. The proxy doesn't notice that a member is cut off from the others: waiters
// learn of a release from their polls then.
//
// F3 is advisory, as package fence says. Go's clock stands still while a machine is
// suspended, and so does the deadline. A watch may show a deleted key late; on a connection
// that is silently dead, not before the deadline. docs/guarantees.md has the restore that goes
// unnoticed.
package etcd

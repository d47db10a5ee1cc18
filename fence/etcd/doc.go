// Package etcd is the lock service of Fencekit on etcd. [NewLocker] makes a [Locker], which implements
// [fence.Locker].
//
// # Model
//
// The queue of a resource is a range of keys, one per acquisition:
// <prefix>/locks/<escaped resource>/<lease id>-<number>. The value is a JSON object with the holder, the epoch,
// and when the acquisition began by the clock of its process. Package inspect, "fencectl locks list" and
// "etcdctl get --prefix fencekit/locks/" show who holds and who waits. One transaction writes the key and reads
// which key was the last one; its revision is the fencing token. The acquisition whose key has the lowest create
// revision owns the resource; keys of its own process whose holders have given up don't count. With
// [Config.MutexKeys] the queues are those of etcd's own tools.
//
// All keys of a Locker live under one etcd lease, the session, which is renewed every third of its time to live,
// and replaced when it was lost. A process has at most 32 keys in one queue (with MutexKeys one); more of its calls
// wait in memory, in order of arrival. If no other process's key is between two of one process, the resource passes
// from one call to the next without waiting for etcd.
//
// Keys that come while two transactions are under way share the next one; two keys of one queue never do, because
// they would have equal tokens. One gRPC stream watches the queues in which this Locker waits or that it observes;
// that of a resource it holds too, after 100 ms or once a caller asks for contention.
//
// An [Election] is the same queue: the owner of the resource of its name leads, and proclaims a value in its lock
// key. Proclaim requires the mod revision that this leader last wrote. So it fails once the key is gone, and one
// whose answer was lost has no effect after a later one that was answered.
//
// # Invariants
//
//   - F1: the token is the key's create revision, also if the client sends the transaction twice.
//   - F2: a session uses a key's name again once no request that is under way can write it, and deletes by create
//     revision. While a process passes a resource on among its calls, it deletes no key before the ones ahead of
//     it. An Acquire whose outcome is unknown is settled by a void, see docs/protocol.md.
//   - F3: every lease ends at the time at which the last successful renewal was sent, plus the time to live that
//     etcd granted, minus a tenth of it. An answer that comes later revives nothing.
//
// A release or an abandoned Acquire that etcd doesn't confirm is repeated in the background until it does, or until
// the session is over. Until then TryAcquire finds the resource locked. If nothing else needs the session it is
// given up, so that no renewal keeps the leftover keys alive.
//
// Close what uses the locker first, then the locker, then the client. Once the client is closed every call fails
// at once, and held locks end at the session's deadline.
//
// # When etcd is in trouble
//
// The Reason of the failing call's [*fence.UnavailableError] says which of these it is, also where a
// [*fence.LeaseLostError] wraps it.
//
//   - It is away, silent, or without a majority: nothing is acquired, and held locks and queue positions last until
//     their own deadline.
//   - It elects another leader: all leases get their whole time to live again, also those of holders that have
//     died. If elections come faster than that, "fencectl locks evict" frees a dead holder's resource.
//   - A member is cut off, or silent without breaking a connection: the watch, which is probed every 5 s, and
//     renewals go to another member. Other requests fail after their timeout until the client closes the
//     connection: see [ClientConfig].
//   - It is out of space: nothing is acquired. Held locks are renewed and released, and calls that are waiting
//     already get their turn.
//   - Its limits are below the defaults: requests for several locks are split.
//   - It rejects the client's authentication or denies permission: as if it were away. Expired tokens are replaced.
//     If it denies the right to read a queue, calls that wait in it and observers fail; a holder assumes that others
//     wait.
//
// # Rights
//
// With etcd's authentication the role of the client's user needs, for the prefix "fencekit":
//
//	etcdctl role grant-permission ROLE readwrite --prefix=true fencekit/locks/
//	etcdctl role grant-permission ROLE readwrite --prefix=true fencekit/void/
//	etcdctl role grant-permission ROLE read fencekit/epoch
//
// With Config.MutexKeys it needs readwrite on <resource>/ of each resource instead of the first. Package inspect
// needs read on <prefix>/locks/ and <prefix>/epoch; to evict, readwrite on <prefix>/locks/ and <prefix>/evicted/.
// "fencectl epoch bump" needs readwrite on <prefix>/epoch. Who may write that can stop all lockers.
//
// # Epochs
//
// After a restore from a backup etcd issues revisions a second time. The key <prefix>/epoch, absent for epoch 1,
// is compared by each acquiring transaction and becomes part of the grant. A running Locker that finds the cluster
// id changed, or raft term, revision or epoch lower than before, loses all leases and grants nothing, with the
// Reason [fence.WentBack], until the epoch is raised. One that was started after the restore can't notice it.
// "fencectl epoch bump --reason TEXT" raises the epoch, in every database first: one that was in etcd alone would
// be lost by the next restore, and issued a second time. Nothing has to be restarted. A call that waits when the
// epoch is raised gets a grant of the old one; package guard acquires another if the database has seen the new one.
//
// A mistyped number that is far above what any database accepts is lowered by "fencectl epoch bump --reason TEXT
// --trust databases": the key's revision shows that etcd has not gone back. Never put a lower number that a database
// might accept: a grant of the higher one, on its way, would then outrank all later ones. Don't delete the key: a
// missing key looks like a restore.
//
// # What is not promised
//
// Give the client the endpoints of etcd's members. Where etcd's grpc-proxy answers in their place, locks exclude
// each other (F2), and [Locker.Check] fails with the Reason [fence.Proxied]. But the proxy answers renewals with
// the latest answer that it has got. So a deadline (F3) is late by as long as etcd's answer took to reach the proxy,
// which the margin has to cover, and a holder that stops with its connection open keeps its locks for up to twice
// the time to live. The proxy doesn't notice that a member is cut off: waiters learn of a release from their polls.
//
// F3 is advisory, as package fence says. Go's clock stands still while a machine is suspended, and so does the
// deadline. A watch may show a deleted key late; on a connection that is silently dead, not before the deadline.
// docs/guarantees.md has the restore that goes unnoticed.
package etcd

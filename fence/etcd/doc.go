// Package etcd is the lock service of Fencekit on etcd: [New] makes a [Locker].
//
// # Model
//
// The queue of a resource is a range of keys, one per acquisition: <prefix>/locks/<escaped resource>/<lease
// id>-<number>. The value is a JSON object with the holder, the epoch, and when the acquisition began by its own
// clock. Package inspect, "fencectl locks list" and "etcdctl get --prefix fencekit/locks/" show who holds and who
// waits. One transaction writes the key and reads the last key before it; its revision is the fencing token. The
// acquisition whose key has the lowest create revision owns the resource; keys of its own process whose holders
// have given up don't count. With [Config.MutexKeys] the queues are those of etcd's own tools.
//
// All keys of a Locker live under one etcd lease, the session, which is renewed every third of its time to live and
// replaced when it is lost. A process has at most 32 keys in one queue (with MutexKeys one); more calls wait in
// memory. Between adjacent keys of one process the resource passes on without waiting for etcd.
//
// One gRPC stream watches the queues in which this Locker waits or that it observes, and those of resources that it
// holds, after 100 ms or once a caller asks for contention. An [Election] is the same queue: the owner of the
// resource leads, and proclaims a value in its lock key.
//
// # Invariants
//
//   - F1: the token is the key's create revision, also if the client sends the transaction twice.
//   - F2: a session reuses a key's name only when no request under way can write it, and deletes by create
//     revision. While a process passes a resource on, it deletes no key before the ones ahead of it. A void settles
//     an Acquire of unknown outcome, see docs/protocol.md.
//   - F3: every lease ends at the time at which the last successful renewal was sent, plus the time to live that
//     etcd granted, minus a tenth of it. A later answer revives nothing.
//
// A release or an abandoned Acquire is repeated in the background until etcd confirms it, or the session is over.
// Until then TryAcquire finds the resource locked. A session that nothing else needs is not renewed any more, so
// that leftover keys expire.
//
// Close what uses the locker first, then the locker, then the client. Once the client is closed every call fails,
// and held locks end at the session's deadline.
//
// # When etcd is in trouble
//
// The Reason of the [*fence.UnavailableError], perhaps within a [*fence.LeaseLostError], says which of these it is:
//
//   - It is away, silent, or without a majority: nothing is acquired. Held locks and queue positions last until
//     their own deadline.
//   - It elects another leader: all leases get their whole time to live again, also those of dead holders. If that
//     happens too often, "fencectl locks evict" frees a dead holder's resource.
//   - A member is cut off or silent: the watch, which is probed every 5 s, and renewals go to another member. Other
//     requests fail after their timeout until the client closes the connection: see [ClientConfig].
//   - It is out of space: nothing is acquired. Held locks are renewed and released, and waiting calls get their
//     turn.
//   - Its limits are below the defaults: requests for several locks are split.
//   - It rejects the client's authentication or denies permission: as if it were away. Expired tokens are replaced.
//     If it denies the right to read a queue, waiting calls and observers fail; a holder assumes that others wait.
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
// "fencectl epoch bump" needs readwrite on <prefix>/epoch; who may write that can stop all lockers.
//
// # Epochs
//
// After a restore from a backup etcd issues revisions a second time. The key <prefix>/epoch, absent for epoch 1, is
// compared by each acquiring transaction and becomes part of the grant. A running Locker that sees another cluster
// id, or a lower raft term, revision or epoch than before, loses all leases and grants nothing, with the Reason
// [fence.WentBack], until the epoch is raised. One that was started after the restore can't notice it.
//
// A change of the epoch ends the session, with [fence.LossEpoch]: a restore may bring back keys that its process has
// released but whose lease it renews, and lose those that it holds. A process that only renews looks for a change
// after each renewal. Waiting calls queue again.
//
// "fencectl epoch bump" raises the epoch, in every database first: in etcd alone it would be lost by the next
// restore, and issued again. Nothing has to be restarted. Never put a lower number that a database might accept: a
// grant of the higher one, on its way, would outrank all later ones. Don't delete the key: that looks like a
// restore. A mistyped number far above what any database accepts is lowered by
// "fencectl epoch bump --reason TEXT --trust databases".
//
// # What is not promised
//
// Give the client the endpoints of etcd's members. Behind etcd's grpc-proxy locks exclude each other (F2), but
// deadlines may be late (F3), and a holder that stops with its connection open keeps its locks for up to twice the
// time to live, since the proxy answers renewals with the latest answer that it has got. [Locker.Check] fails then,
// with the Reason [fence.Proxied].
//
// F3 is advisory, as package fence says. Go's clock, and with it the deadline, stands still while a machine is
// suspended. A watch may show a deleted key late; on a silently dead connection not before the deadline.
// docs/guarantees.md has the restore that goes unnoticed.
package etcd

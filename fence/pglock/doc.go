// Package pglock is the lock service on PostgreSQL, of the versions that package storage/postgres takes: sessions,
// owners and queues are tables beside the fences. It takes no server but the database that is there anyway.
//
//   - F1: within an epoch, which is the database's, each token is above all that were granted for the resource, and
//     above its fence's. So a database whose locks were in etcd goes on with this one.
//   - F2: who changes a resource's owner or queue locks its row first. An owner is replaced only if it has released
//     the resource or its session doesn't exist. A session that has expired is deleted; its renewal and the deletion
//     write the same row, so one of them finds that it comes too late.
//   - F3: the session's own deadline, a tenth of the time to live before it expires. A Locker has one session, which
//     one statement renews every third of the time to live.
//
// Grants, releases and renewals are durable (synchronous_commit is at least on). One whose wait for a synchronous
// standby was cut short is asked for again before it counts. A Locker has one connection of its own, made as those of
// the pool are but not one of them, from its first use until Close: on it it renews, and listens. A waiting call
// wakes on NOTIFY, when the session that blocks it expires, and on a poll every second; behind a pooler, where no
// notification arrives, every 100 ms.
//
// # What is not promised
//
// The locks are as lasting as the database. A failover or a restore ends all sessions at their next renewal, unless
// it loses less than the time since the last one: see "Locks in Postgres" in docs/guarantees.md. If the server's clock
// is set forward, or a standby takes over whose clock is ahead, sessions end early, and two leases may be live until
// the first one's next renewal or its deadline. The fence rejects what comes of that.
//
// Each lock costs the primary two durable commits. NOTIFY, which only locks cause that others wait for, makes the
// commits of the whole server wait for each other for a moment. docs/operate.md has when to use etcd.
//
// A lock has a row for good, as a fence has.
package pglock

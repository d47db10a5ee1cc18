// Package pglock is the lock service on PostgreSQL, from version 14 on: sessions, owners and queues are tables beside
// the fences. It takes no server but the database that is there anyway.
//
//   - F1: within an epoch, which is the database's, each token is above all that were granted for the resource, and
//     above its fence's. So a database whose locks were in etcd goes on with this one.
//   - F2: who changes a resource's owner or queue locks its row first. An owner is replaced only if it has released
//     the resource or its session doesn't exist. A session that has expired is deleted; its renewal and the deletion
//     write the same row, so one of them finds that it comes too late.
//   - F3: the session's own deadline, a tenth of the time to live before it expires. A Locker has one session, which
//     one statement renews every third of the time to live.
//
// Grants, releases and renewals are durable (synchronous_commit is at least on); one whose wait for a synchronous
// standby was cut short counts all the same. A Locker takes one connection out of the pool when it is first used, for
// itself, and keeps it until Close: on it it renews, and listens. If that connection breaks while the pool has none to
// spare for longer than the time to live, the leases are lost. A waiting call is woken by NOTIFY, and looks each second besides. Behind a pooler, where no
// notification arrives, it looks every 100 ms.
//
// # What is not promised
//
// The locks are as lasting as the database. A failover or a restore ends all sessions: see "Locks in Postgres" in
// docs/guarantees.md. If the server's clock is set forward, sessions end early, and two leases may be live until the
// first one's deadline. The fence rejects what comes of that.
//
// Each lock costs the primary two durable commits. NOTIFY, which only locks cause that others wait for, makes the
// commits of the whole server wait for each other for a moment. docs/operate.md has when to use etcd.
//
// A lock has a row for good, as a fence has.
package pglock

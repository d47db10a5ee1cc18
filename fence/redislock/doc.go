// Package redislock is the lock service that many have: Redis, with SET NX PX, a unique value and a watchdog, and with
// a counter of tokens. Redis may lose locks and counter in a failover, a restart or by eviction, and then two
// processes own a resource. With package guard the fence in the database still rejects the one that is late, and a
// lost counter is raised above the fence's token (fence.Raiser).
//
//   - F1: one script takes the lock and increments the resource's counter. What Redis loses is lost.
//   - F2: as far as Redis keeps the lock. A lost answer is asked for again under the same holder. A request that
//     reaches Redis after the release that followed it keeps the resource from others for the time to live.
//   - F3: a lease's deadline is its last renewal's time of sending, plus the time to live, minus a tenth.
//
// There is no order of arrival: waiting calls try again every Config.PollInterval, with jitter. As often a holder looks
// whether another process waits.
//
// Keys of a resource are PREFIX{:RESOURCE}:lock, :token and :waits, so that Redis Cluster keeps them together. Each
// lock is renewed by a request of its own, three times in its time to live. The counter has no expiry. For a restore
// of Redis from a backup nothing has to be done. Redis has no epoch: Config.Epoch is at least the database's.
package redislock

// Package natslock is the lock service that users of NATS have: a key-value bucket of JetStream, with a time to live
// for each key (NATS 2.11 or later). NATS may lose writes that it has acknowledged: a server that stops hard before it
// has synced its files (sync_interval, two minutes unless it is set to always), a bucket that is restored or deleted.
// Then two processes own a resource. With package guard the fence in the database still rejects the one that is late,
// and a lost count is raised above the fence's token (fence.Raiser).
//
//   - F1: a key is written on condition of the revision that was read, and the token is its new one: the sequence of
//     the bucket's stream, which all resources share, plus what Raise has added. What NATS loses is lost. An acquisition
//     that stands still while Raise and another grant pass by gets a lower token, which the fence rejects.
//   - F2: as far as NATS keeps the lock. A lost answer is asked for again under the same holder. Nothing is sent
//     without a connection, since the client would keep it for later; a write that still arrives after the release that
//     followed it keeps the resource from others for the time to live. So may a released lock, after a hard stop.
//   - F3: a lease's deadline is its last renewal's time of sending, plus the time to live, minus a tenth. Servers of a
//     cluster expire keys by their own clocks, which must not differ by more than that tenth.
//
// There is no order of arrival: a release wakes a waiting call, and all try again every Config.PollInterval, with
// jitter. Which process waits is told in messages that NATS doesn't keep.
//
// The Locker makes its bucket, also when somebody has deleted it, and refuses one with other settings: a *BucketError
// says what to set. Above all a bucket has no LimitMarkerTTL, whose markers may overwrite a renewal
// (findings/nats-delete-marker.sh), and isn't read directly from any server. Use Replicas of 3 in a cluster. A leader
// that is stopped hands over at once; one that is killed was replaced after 5 to 10 seconds, which locks outlast with a
// TTL of 20 seconds or more.
//
// Keys of a resource are lock.RESOURCE and raise.RESOURCE; the latter has no time to live, and exists only where Raise
// was needed. An acquisition takes three requests, one of them a write; a renewal and a release two; a call that waits
// one in each interval, and a message. Each lock is renewed by requests of its own, three times in its time to live.
// For a restore of the bucket from a backup nothing has to be done. NATS has no epoch: Config.Epoch is at least the
// database's.
//
// A user of the connection may publish to $JS.API.STREAM.INFO.KV_BUCKET, $JS.API.STREAM.MSG.GET.KV_BUCKET, $KV.BUCKET.>
// and fencekit.BUCKET.>, to $JS.API.STREAM.CREATE.KV_BUCKET if the Locker is to make the bucket, and subscribe to
// _INBOX.> and fencekit.BUCKET.>.
package natslock

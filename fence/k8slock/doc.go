// Package k8slock is the lock service that every service on Kubernetes has: a Lease of coordination.k8s.io for each
// resource, in the API server that runs the cluster. It needs Kubernetes 1.35, since which versions of objects are numbers
// that grow.
//
//   - F1: a token is the Lease's resourceVersion at its acquisition, which is etcd's revision. A Lease that is made again
//     goes on from there.
//   - F2: every write is conditional on the version that was read last. A request that reaches the API server after the
//     release that followed it keeps the resource from others for the time to live.
//   - F3: a lease's deadline is its last renewal's time of sending, plus the time to live, minus a tenth.
//
// No server ends a Lease, and no clock of another machine counts. The time of a holder that died is over for a process
// that has seen no renewal for as long as it lasts, so one that comes new waits for all of it: with the default of 10 s
// some 10 to 11 s. A job that calls TryAcquire and ends never gets past a holder that died: have it wait longer with
// Acquire. There is no order of arrival: a watch tells the oldest waiting call of a process that the Lease is gone, and
// all also try every Config.PollInterval. As often a process asks whether another waits for what it has, once for all.
//
// A lock costs a request to acquire it and one to release it, which write to the cluster's etcd as every renewal does,
// three in the time to live. It is for locks that are held, not for thousands a second. All requests of a client share a
// connection. If that is cut silently, client-go notices after 45 s, and leases are lost; with the variables
// HTTP2_READ_IDLE_TIMEOUT_SECONDS=2 and HTTP2_PING_TIMEOUT_SECONDS=2 it does within the default time to live.
//
// A Lease is named PREFIX.RESOURCE, with dots for slashes, if the resource consists of lower-case letters, digits, inner
// hyphens and slashes, else PREFIX-HASH; its annotation fencekit/resource has the resource. A Lease without it is never
// written (ForeignLeaseError). Release deletes the Lease. That of a process that died stays until another acquires the
// resource, or somebody deletes it. deploy/kubernetes/components/leases has the Role that it takes.
//
// After a restore of the cluster's etcd, versions are issued again. Restart the API servers, which may remember later ones.
// Nothing else has to be done: the fence raises the tokens of each resource that it rejects (fence.Raiser), and what to
// add is kept in the Lease, which then stays. Or raise the epoch of the database, and Config.Epoch with it.
package k8slock

// Package fault has the faults that a chaos run injects into its processes and
// servers, one kind of fault per file.
//
// # Model
//
// A Fault is injected into a Site, which the run provides, and is reverted later. It is
// plain data: a schedule of faults can be made from a seed, printed, and made again.
// Inject returns when the fault is in effect, not when it was asked for: the process has
// stopped, the connection is silent, the lease is gone.
//
// # What is not promised
//
// A fault whose victim no longer exists, such as the lease of a lock that was released a
// moment ago, returns ErrMissed: it was not injected.
package fault

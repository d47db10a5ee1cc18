// Package fault holds what can be done to the processes and servers of a chaos
// run, one kind of fault per file.
//
// # Model
//
// A Fault strikes a Site, which the run offers, and is healed later. It is made
// from data alone, so that a schedule of faults can be made from a seed, printed
// and made again. Inject returns when the fault is there, not when it was asked
// for: a process is stopped, a connection is silent, a lease is gone.
//
// # What is not promised
//
// A fault whose victim is not there any more, such as the lease of a lock that
// was released a moment ago, returns ErrMissed: it didn't happen.
package fault

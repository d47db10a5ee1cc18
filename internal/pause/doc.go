// Package pause stops the calling process at an exact point, as a garbage
// collector, an operator or a hypervisor might at any point.
//
// Self stops everything in the process by a signal, as an operator does.
// StopTheWorld stops Go alone, as the garbage collector does: the process runs,
// its sockets and threads in system calls do too, but no goroutine gets on. Both
// end when another process says so; the one that is stopped can't.
//
// # What is not promised
//
// What a goroutine has handed to the kernel or to C before StopTheWorld goes on
// meanwhile; it can't come back from there. The stop is longer than asked for by
// the time that a dump of the heap takes.
package pause

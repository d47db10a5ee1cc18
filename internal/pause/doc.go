// Package pause pauses the calling process at an exact point, as a garbage collector, an
// operator or a hypervisor might at any point.
//
// Self pauses the whole process by a signal, as an operator does. StopTheWorld stops Go
// alone, as the garbage collector does: the process runs, and so do its sockets and its
// threads in system calls, but no goroutine. Another process ends both.
//
// # What is not promised
//
// Work that a goroutine has handed to the kernel or to C before StopTheWorld goes on
// meanwhile, but can't return. The stop is longer than requested by the time that a dump of
// the heap takes.
package pause

//go:build unix

// Package supervise runs a command for as long as a lock is held, and no longer.
//
// # Model
//
// Three processes: the supervisor, which holds the lock and calls [Run]; the command, which
// leads a process group of its own; and the watchdog. The last two are this binary, executed
// again ([RunHelper]); the first process of the group becomes the command when the watchdog knows
// the group.
//
// The supervisor sends the watchdog the lock's deadline as often as it changes, over a pipe, on
// the clock that all processes of the machine share. The watchdog is in a session of its own,
// where no signal of a terminal reaches it. It kills the group at the deadline, however the
// supervisor fares, and at once when the pipe ends without a farewell.
//
// # Invariants
//
//   - Nothing of the command runs before the watchdog has its group and a deadline.
//   - A deadline that is sent is no later than the lock's: the clock is read first.
//   - When the deadline comes near (by Grace), or the lock is lost earlier, the group gets
//     SIGTERM, and SIGKILL when the deadline has come, or Grace after the loss, whichever is
//     first.
//   - Run returns when all of the group is gone, so what the lock guards can be given up.
//
// # What is not promised
//
// A process that leaves the group, as a daemon or the job of an interactive shell does, is not
// killed. If supervisor and watchdog are both stopped, or both killed, nothing is left that could
// kill the group; on Linux the kernel kills the command itself when the supervisor ends. A
// process that can't be killed, in an uninterruptible system call or since it has changed its
// user, outlives the deadline. Run waits for the command itself however long it lives, and for
// the rest of its group a second beyond the deadline.
package supervise

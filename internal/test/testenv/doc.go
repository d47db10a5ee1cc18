// Package testenv is the TestMain of tests that use real servers. Packages below it run these, on the loopback, for
// tests, the demo and chaos runs of this module. All of them stand on package process, which gives a server its
// directory, ports and control; package child starts any other program.
//
// A server is a child process with a directory under os.TempDir() and ports that are its own until Stop. So it can be
// killed, paused and started again on the same address and data. An environment variable names a Postgres that runs
// already; that is used and never controlled. Tests share one server of each kind per binary (etcdserver.Shared,
// pgserver.Shared) and get a key space or a database of their own on it; a test that breaks its server starts one.
//
// # Who cleans up
//
// Nothing outlives the owner, the process that started the servers:
//
//   - Stop, and Main for shared servers, end servers and remove directories.
//   - When the owner dies without that, Linux kills its children at once: each is started from a thread that stays
//     until the child has ended, because the kernel's death signal follows the thread.
//   - Each directory has a janitor, a child that sees the end of a pipe when the owner dies. It kills what is left in
//     the directory (Postgres's own children outlive their parent while they compute, or are stopped), removes the
//     container and shared memory, and the directory. Stop has it do the same.
//
// # What is not promised
//
// Who kills the janitors too keeps what they would have removed. Servers speak plain text without passwords on
// 127.0.0.1, unless a test makes etcd do otherwise: any local user can connect. Other systems than Linux and macOS are
// not supported; on macOS the janitor does what the death signal does.
package testenv

// Package testenv runs a real etcd, a real Postgres, a PgBouncer before it and a
// real Redis for tests, the demo and chaos runs, on the loopback. It is for this
// module's own use.
//
// # Model
//
// A server is a child process with a directory under os.TempDir() and ports
// that are its own until Stop. So it can be killed, paused and started again
// on the same address and data. etcd is the running binary itself, executed
// again (Reexec); Postgres is found on the machine or run in Docker, in the
// order that StartPostgres documents; PgBouncer and Redis are what is installed.
// Environment variables name servers that run already; those are used and never
// controlled.
//
// An EtcdCluster has several members, of which one can be cut off from the others
// while its clients still reach it. Their talk with each other goes through proxies
// of this package, or, with FENCEKIT_ETCD_CLUSTER=docker, through a network of
// their containers that a member can be taken out of.
//
// A Postgres from this machine's own binaries can do more (PostgresConfig.Local):
// its data can be copied and put back, it can have a standby, and its disk can be
// full. That works as root and as an ordinary user.
//
// Tests share one server of each kind per binary (SharedEtcd, SharedPostgres)
// and get a key space or a Database of their own on it; a test that breaks its
// server starts one for itself.
//
// # Who cleans up
//
// Nothing outlives the owner, the process that started the servers:
//
//   - Stop, and Main for shared servers, end servers and remove directories.
//   - When the owner dies without that, Linux kills its children at once: each
//     is started from a thread that stays until the child has ended, because
//     the kernel's death signal follows the thread.
//   - A child of the owner, the janitor, sees the end of a pipe when the owner
//     dies. It kills what is left in the directories (Postgres's own children
//     outlive their parent while they compute, or are stopped), removes
//     containers, networks and shared memory, and the directories.
//   - If the janitor was killed too, the next start of a server by this user
//     does the same for all directories whose owner has died. A lock that the
//     kernel drops with the owner tells them; pids alone would be used again.
//
// # What is not promised
//
// Servers speak plain text without passwords on 127.0.0.1, unless a test makes
// etcd do otherwise: any local user can connect. Other systems than Linux and macOS are not supported; on macOS
// there is no death signal, and the janitor does all of it.
package testenv

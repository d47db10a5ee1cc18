// Command fencectl manages Fencekit's schema, verifies and prunes its history, protects tables,
// shows and takes away locks in etcd, raises the epoch after a restore, and runs commands under a
// lock.
//
//	fencectl migrate up        bring the schema up to date
//	fencectl migrate status    say which migrations are applied
//	fencectl migrate get       print the migrations' SQL
//	fencectl history prune     delete what the policy no longer keeps
//	fencectl history policy    show or set the policy that prunes follow
//	fencectl history hold      keep the history of a resource as evidence
//	fencectl history release   end a hold
//	fencectl history holds     show the resources on hold
//	fencectl tokens history    show claims, writes, voids and rejections in order
//	fencectl audit verify      verify the history in a database or in exports
//	fencectl audit export      write the history to a file that verifies without the database
//	fencectl audit anchor      record the heads of the history outside the database, signed
//	fencectl audit prove       prove the head of one resource without the others
//	fencectl audit report      say whether anything was written without the lock in a period
//	fencectl audit why         explain a rejection or an operation in plain words
//	fencectl audit keygen      make the key of a log
//	fencectl locks list        show holders and waiters, and their claims in the database
//	fencectl locks queue       show the holder and the waiters of a resource, in order
//	fencectl locks watch       show holders and waiters as they come and go
//	fencectl locks evict       take the lock from a holder that hangs
//	fencectl locks evictions   show evicted holders and the reasons
//	fencectl epoch show        compare etcd's epoch with the databases'
//	fencectl epoch bump        raise the epoch, as after a restore of etcd
//	fencectl exec              run a command while a resource is locked
//	fencectl doctor            examine etcd and databases, and say how to fix what is wrong
//	fencectl protect           reject, or record, unguarded writes to a table
//	fencectl unprotect         remove the triggers of protect
//	fencectl protected         show the protected tables, or recorded unguarded writes
//	fencectl chaos             run Fencekit under real faults, by fencectl-chaos
//	fencectl completion        print a script that completes command lines in a shell
//	fencectl version           print versions
//
// Data goes to stdout, everything else to stderr. The exit code is a contract: 0 ok, 1 a
// property is violated, 2 inconclusive, 3 environment not ready, 64 usage. Passwords are
// never printed: errors don't repeat arguments that may contain one.
//
// Each command has a file of its own. flags.go and database.go hold what the commands on a database
// share, etcd_flags.go and etcd.go what those on etcd share, and package internal/cli what all share
// with fencectl-chaos, which "fencectl chaos" finds beside this binary or on the PATH.
package main

// Package doctor examines an installation of Fencekit: its etcd, its databases, and whether the two
// fit together. It is for this module's own use: "fencectl doctor".
//
// # Model
//
// The table checks lists all checks. Each reads one thing and returns what it has seen; many are a query in sql,
// each row of which is a finding. findings.txt has the rest of a finding: its severity, its texts, why it matters
// and the fix. A server that doesn't answer, an etcd that grants no lock to the user and a schema that isn't
// migrated are findings themselves. Further checks of them are left out; those of other servers are made.
//
// # Invariants
//
//   - Nothing is changed. The one thing written is a lease in etcd, to see the time to live that
//     etcd grants; it is revoked at once. All SQL runs in read-only transactions.
//   - What could not be examined is a finding as well (not-checked): no findings means that
//     every check of the servers that were given was made.
//   - No statement waits for a lock for longer than a second or runs for longer than
//     Limits.Statement. The comparison of fences with their history begins no page after Limits.Scan. If
//     a limit ends a check, a finding says so.
//
// # What is not promised
//
// The examination is no audit: it compares each fence with the ends of its history, and counts the
// entries between them where the history is short enough, but verifies no hashes. What only the
// services' own processes know, such as the settings of their etcd clients, it can't see.
package doctor

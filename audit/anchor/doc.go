// Package anchor keeps what is needed to prove a history unchanged, outside the database that
// it is about.
//
// # Model
//
// A hash chain alone proves nothing against those who can rewrite all of it: the owner of the
// schema, a superuser, or an older dump that is put back. So an auditor keeps a Log: a file, to
// which each run of Log.Anchor appends a record for each resource whose head (audit.Head) has
// moved. A head stands for all entries up to it. The records are the leaves of a Merkle tree
// (RFC 6962), and a Checkpoint, signed with a key that the database never sees, says what the
// first so many of them are. It is small, and can be kept anywhere. Who has it can check:
//
//   - with the log, that no record was changed, removed or inserted since (ReadHeads), and then
//     the history against the heads;
//   - with a Proof and without the log, the head of one resource, and learns nothing of the others;
//   - with a later checkpoint and the log, that the later one only added to the earlier one.
//
// A log is of one schema of one database. The name of its key is its origin: one key signs one
// log. A log is never cut; Log.Continue begins another one where it ended.
//
// # Formats
//
// A log is lines of JSON; each, without its newline, is a leaf. The others are those of C2SP: a
// checkpoint is a tlog-checkpoint, a proof a tlog-proof whose extra data are the record, and
// keys and signatures are those of a signed-note. A checkpoint may carry further signatures,
// such as those of witnesses; they are kept, and not looked at.
//
// # Invariants
//
//   - A checkpoint that a log signs covers all records of those it signed before, at the same
//     places: no record that was signed is removed or changed, and a log that doesn't match its
//     last checkpoint is refused.
//   - What is signed is durable: the records are synced first, and the checkpoint replaces the
//     one before atomically.
//   - Of a resource that went back, or was rewritten, no head is recorded any more, so the next
//     runs find it as well (Violation).
//   - One Log at a time is open on a file.
//
// # What is not promised
//
// That a history was true when it was anchored. What was written and rewritten between two runs
// was never seen. The times of records are those of the anchoring machine's clock. Whoever has the
// log's file and its key can make another log: earlier checkpoints that they can't reach show
// it.
package anchor

// Package anchor records the heads of a history in a log outside the database, so that an auditor
// can later prove that the history was not rewritten.
//
// # Model
//
// The hash chain of a history can't detect a rewrite by a role that may replace all of it: the
// owner of the schema, a superuser, or an operator who restores an older dump. So an auditor
// keeps a [Log], a file outside the database. Each run of [Log.Anchor] appends one record for each
// resource whose head ([audit.Head]) has moved; a head stands for all entries up to it. The
// records are the leaves of a Merkle tree (RFC 6962). Each run ends with a signed [Checkpoint]:
// the number of records and the root hash of their tree, signed with a key that the database
// never sees. A checkpoint is a few hundred bytes, and copies of it can be kept anywhere. With a
// copy and the public key an auditor can check:
//
//   - with the log, that no record was changed, removed or inserted since the checkpoint was
//     signed ([ReadHeads]), and then that the history still contains the recorded heads;
//   - with a proof and without the log, the head of one resource ([ParseProof]); a proof reveals
//     nothing about other resources;
//   - with the log and a later checkpoint, that the log was only appended to in between.
//
// A log covers one schema of one database. The name of its key is its origin: each log has its
// own key. A log is never truncated; [Log.Continue] starts a new log where another one ended.
//
// This package's checkpoints are unrelated to the checkpoints that pruning leaves in the
// database (audit.FindingWrongCheckpoint).
//
// # Formats
//
// A log is a file of JSON lines; each line, without its newline, is a leaf. The other formats are
// those of C2SP: a checkpoint is a tlog-checkpoint, a proof is a tlog-proof with the record as its
// extra data, and keys and signatures are those of signed-note. A checkpoint may carry further
// signatures, such as those of witnesses. They are kept and ignored.
//
// # Invariants
//
//   - A checkpoint covers all records that earlier checkpoints of the log cover, at the same
//     indexes. Open refuses a log that doesn't match its last checkpoint.
//   - A checkpoint is signed after its records were synced to disk, and replaces the previous one
//     atomically.
//   - A resource that went back or was rewritten, or whose recorded head can't be compared any
//     more, gets no further records, so that later runs report it again ([Run]).
//   - One Log at a time is open on a file.
//
// # What is not promised
//
// An anchor doesn't prove that a history was true when it was anchored, and a change that was made
// and undone between two runs goes unseen. The times of records are those of the anchoring
// machine's clock. A person with both the log and its private key can forge another log; a
// checkpoint that was copied out of that person's reach reveals it.
package anchor

// Package audit reads, verifies and explains the history that storage/postgres keeps: one entry
// for each move of each fence, in the transaction of the move, and the record of rejections.
//
// It only reads, and a role that may read (postgres.Roles.Reader) is enough. Nothing here is needed to run guarded
// transactions.
//
// # Reading
//
// [Database.Entries], [Database.Operations], [Database.Rejections] and [Database.Fences] read what
// a [Filter] admits, in the order of the resources' names and, within a resource, of the positions. They
// are iterators over pages: however much there is, they hold no more than a page in memory, and
// no transaction while the caller works. A reading can stop anywhere and go on at the cursor of
// what it returned last.
//
//   - What a reading returns is what the filter says, exactly. Indexes, and the rule that the
//     entries of a grant follow its claim without a gap, only tell where not to look. A time is compared with that of each entry, since the
//     server's clock may have gone back.
//   - A reading sees what is committed when it comes to it. Pages are not of one snapshot: of
//     what is written or pruned meanwhile it returns a part. An entry never changes.
//   - What the tables say is returned as it is. Whether somebody has changed them is for a
//     verification to find.
package audit

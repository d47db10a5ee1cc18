// Package audit reads, verifies and explains the history that storage/postgres keeps: one entry
// for each move of each fence, in the transaction of the move, and the record of rejections.
//
// It only reads; the reader role (postgres.Roles.Reader) is enough, and the app role for what the
// next section has, except Holds. Guarded transactions don't need this package.
//
// # Reading
//
// [Database.Entries], [Database.Operations], [Database.Rejections], [Database.Fences] and
// [Database.Holds] return the rows that match a [Filter], in the order of resource and position.
// They are iterators that read page by page: they hold at most one page in memory, and no
// transaction while the caller works. A loop may stop anywhere; a later one continues at the
// cursor of the last row.
//
//   - Filters are exact. Indexes, and the rule that the entries of a grant follow its claim
//     without a gap, only save reading. A filter by time compares the time of each entry, since
//     the server's clock may have gone back.
//   - The pages are not of one snapshot. A reader may or may not see rows that are written or
//     pruned meanwhile. An entry never changes.
//   - Rows are returned as they are in the tables. Only a verification finds tampering.
package audit

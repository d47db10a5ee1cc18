// Package audit reads, verifies and explains the history that storage/postgres keeps: one entry
// for each move of each fence, in the transaction of the move, and the record of rejections.
//
// It only reads, and a role that may read (postgres.Roles.Reader) is enough. Nothing here is needed to run guarded
// transactions.
package audit

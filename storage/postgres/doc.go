// Package postgres is the storage.Store on PostgreSQL, from [MinVersion] on: fences and history live in the database
// that holds the data they guard, and a guarded transaction is a pgx.Tx.
//
// # Protocol
//
// The fence of a resource is one row. A claim, the seal of a guarded transaction, and the void of one in doubt each
// move it by one position, and write the history entry of that position. They compete for the row; the second one
// finds it at another position and is rejected. Safety rests on the seal; the begin check and eviction serve
// liveness only. docs/protocol.md has the argument.
//
// # The transaction of a guarded function
//
// The pgx.Tx of a guarded function differs from pgx's own where that would let the function, or a goroutine that it left
// behind, use the connection without the guard:
//
//   - Commit, Rollback and a pgx.Batch with BeginTx fail with guard.ErrInvalid. Begin makes a savepoint.
//   - Conn returns a closed connection, with the types and configuration of the real one. Conn of Rows returns nil,
//     and a pgx.QueryRewriter is given nil.
//   - LargeObjects fails the function with errors.ErrUnsupported. Call the server's functions: lo_from_bytea,
//     lo_get and lo_put, or lo_open, loread and lowrite.
//   - One goroutine at a time uses the transaction or one of its results. What a call calls back can't use it: a
//     driver.Valuer, a sql.Scanner, a pgx.CopyFromSource, a callback of a batch.
//   - The transaction and its results fail once the function has returned, and a result once it is closed. The
//     Rows of a batch close when its next result is asked for.
//   - Rows.TypeMap, Rows.FieldDescriptions and what Prepare returns are copies.
//
// A [Batch] gets no pgx.Tx. Tracers, hooks and codecs of the pool see the connection itself, and must not keep it.
//
// # What is not promised
//
// Besides what docs/guarantees.md says:
//
//   - User code that sends COMMIT as SQL text commits its writes so far without a fence. This is reported as
//     storage.ErrTxEnded, not undone; if it wrote to a table that [Protect] protects in enforce mode, the COMMIT
//     fails. Locks that it takes afterwards are neither bounded nor ended by eviction.
//   - COPY FROM STDIN is not bounded by StatementTimeout, and a function's own SQL can lift each limit of its
//     transaction (set local statement_timeout = 0). Eviction ends those too.
//   - Other applications should not hold shared two-key advisory locks whose first key is a resource's number (the
//     column id, from a random start above a million): if the second key is a token, eviction takes their backend
//     for a stale holder's.
//
// # Roles
//
// The role that migrates owns the schema. Services need only the rights of Roles.App, which GrantRoles gives: to
// read, and to call the functions of the protocol, which write with the owner's rights. Such a role can't change
// fences or history otherwise, and its claims are bounded by what the database has seen (storage.ReasonTokenJump).
//
// # Isolation levels
//
// Claims, resolutions and records of rejections run at READ COMMITTED; guarded transactions run at
// Config.Isolation. All guarantees hold at every level. At the stricter ones a seal meets a serialization failure
// if the fence has moved since the begin check. If the grant no longer has the fence, the store returns the
// rejection, else a *TransientError. At SERIALIZABLE transactions of different resources may conflict on the fences
// if they are over three resources or more (see "Load" in docs/operate.md), or while a long transaction elsewhere
// keeps dead versions of fences from being removed.
package postgres

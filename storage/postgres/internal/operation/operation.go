// Package operation implements the pgx.Tx that an operation gets: it hides the connection,
// can't end the transaction, and fails once the operation has returned.
package operation

import "github.com/jackc/pgx/v5"

// Operation is one operation's use of a connection.
type Operation struct {
	session session
	tx      tx
}

// New begins the use of conn, whose transaction is open, or begins with opening if that is not nil.
func New(conn *pgx.Conn, opening Opening) *Operation {
	o := &Operation{session: session{conn: conn, opening: opening}}
	o.tx.session = &o.session
	return o
}

// Tx returns the transaction to give to the operation.
func (o *Operation) Tx() pgx.Tx { return &o.tx }

// Finish ends the operation: no further call begins. It reports whether the connection is
// still in use. If it is, the connection must not be used for anything else; if not, the
// operation will never use it again.
func (o *Operation) Finish() (inUse bool) { return o.session.finish() }

// Verdict returns why the transaction can't commit after the operation has returned err;
// nil if it can. That is err itself if err is not nil. Finish has returned false before.
func (o *Operation) Verdict(err error) error { return o.session.verdict(err) }

// SeveralStatements reports whether a text of several statements may have been sent. Finish
// has returned false before.
func (o *Operation) SeveralStatements() bool { return o.session.several }

// MentionsDeferrable reports whether a text that was sent may have made a constraint or a trigger that can
// be deferred until COMMIT. Finish has returned false before.
func (o *Operation) MentionsDeferrable() bool { return o.session.deferrable }

// SentControl reports whether a text that was sent may have begun or ended a transaction. Finish
// has returned false before.
func (o *Operation) SentControl() bool { return o.session.control }

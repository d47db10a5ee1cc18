// Package operation is the pgx.Tx that an operation works with: what it gives out hides
// the connection, can't end the transaction, and is of no use once the operation has
// returned.
package operation

import "github.com/jackc/pgx/v5"

// Operation is one operation's use of a connection, whose transaction is open.
type Operation struct{ session session }

// New begins the use of conn.
func New(conn *pgx.Conn) *Operation { return &Operation{session{conn: conn}} }

// Tx returns the transaction to give to the operation.
func (o *Operation) Tx() pgx.Tx { return &tx{session: &o.session} }

// Finish lets no call begin any more. It reports whether the connection is in use
// still; if so it must not be touched, and not be used for anything else. If not, it
// never will be again.
func (o *Operation) Finish() (inUse bool) { return o.session.finish() }

// Verdict returns why the transaction can't commit after the operation has returned
// err, if so: err itself if that is not nil. The operation is finished, and the
// connection not in use.
func (o *Operation) Verdict(err error) error { return o.session.verdict(err) }

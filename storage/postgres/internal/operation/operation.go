// Package operation implements the pgx.Tx that an operation gets: it hides the connection,
// can't end the transaction, and fails once the operation has returned.
package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
)

// Operation is one operation's use of a connection. It is shared by the transaction, the savepoints in
// it, and their results. It lets one call at a time use the connection, of the result that is open or
// of the transaction, and none after the operation has returned: a goroutine that the operation left
// behind must not reach a connection that runs another transaction by then.
type Operation struct {
	conn    *pgx.Conn
	opening Opening // nil once the transaction has begun
	unbegun error   // why it could not begin; nil if nothing was sent
	texts   Texts

	mu      sync.Mutex
	calling bool      // a call runs
	open    *result   // which alone may use the connection; nil if none is open
	spoilt  bool      // a result was used while a call ran: it may seem to have ended
	closed  bool      // the operation has returned
	shown   *pgx.Conn // what Conn returns; nil before its first call
	ended   bool      // SQL text ended the transaction
	// conflict is the serialization failure that has aborted the transaction. The operation may
	// return another error, or none.
	conflict error
	failure  error // the first error since a statement last went well
	barred   error // why the transaction must not commit, whatever the operation returns
}

// Opening begins the transaction of an operation with its first statement.
type Opening interface {
	// Query begins the transaction in one write with that statement, and returns the statement's rows. If both
	// results are nil, nothing has run, and Begin has to be called first. An error says why the transaction could
	// not begin. exec says that no rows are wanted.
	Query(ctx context.Context, sql string, args []any, exec bool) (pgx.Rows, error)
	// Begin begins the transaction in a round trip of its own, and returns its connection. It may
	// take another one, inside change, which fails if the operation has returned meanwhile.
	Begin(ctx context.Context, change func(func()) error) (*pgx.Conn, error)
}

// Texts says what the texts that an operation has sent may have held.
type Texts struct {
	Several    bool // several statements in one text, such as COMMIT
	Control    bool // a statement that begins or ends a transaction
	Deferrable bool // one that makes a constraint or a trigger that can be deferred until COMMIT
	Forgets    bool // one that removes prepared statements
}

// Add adds what other texts may have held.
func (t *Texts) Add(o Texts) {
	t.Several, t.Control, t.Deferrable, t.Forgets = t.Several || o.Several, t.Control || o.Control, t.Deferrable || o.Deferrable, t.Forgets || o.Forgets
}

// WhatStays says which writes stay, in whichever way SQL has ended the transaction, and the remedy.
const WhatStays = "what a COMMIT of its own wrote stays, without a fence; what a ROLLBACK undid is gone; don't send COMMIT or ROLLBACK: return nil or an error"

var (
	errEndedBySQL = fmt.Errorf("%w by SQL in the operation: "+WhatStays, storage.ErrTxEnded)
	errUsedLate   = fmt.Errorf("%w: it was used after the operation had returned", storage.ErrTxEnded)
	// ErrInUse is why a call fails while another one, or an open result, has the
	// connection.
	ErrInUse = errors.New("postgres: the transaction is in use by another call or an open result: close Rows and BatchResults, scan each Row, wait for goroutines, and don't use it in what its own calls call back")
)

// New begins the use of conn, whose transaction is open, or begins with opening if that is not nil.
func New(conn *pgx.Conn, opening Opening) *Operation {
	return &Operation{conn: conn, opening: opening}
}

// Tx returns a transaction to give to the operation.
func (o *Operation) Tx() pgx.Tx { return &tx{o: o} }

// Finish ends the operation: no further call begins. It reports whether the connection is still in
// use. Then it must not be used for anything else.
func (o *Operation) Finish() (inUse bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	return o.calling || o.open != nil || o.spoilt
}

// Texts returns what was noted of the texts that were sent. Finish has returned false before.
func (o *Operation) Texts() Texts { return o.texts }

// Verdict returns why the transaction can't commit after the operation has returned err; nil if it
// can. Finish has returned false before.
func (o *Operation) Verdict(err error) error {
	err = o.note(err, pgconn.CommandTag{})
	if o.conflict != nil && sqlstate.Of(err) != sqlstate.Serialization {
		err = errors.Join(o.conflict, err)
	}
	if o.barred != nil {
		return errors.Join(o.barred, err)
	}
	if sqlstate.Of(err) == sqlstate.Aborted && o.failure != nil && !errors.Is(err, o.failure) {
		return o.notReturned(err)
	}
	if err != nil {
		return err
	}
	pg := o.conn.PgConn()
	switch {
	case o.opening != nil:
		return o.unbegun
	case pg.IsClosed():
		return fmt.Errorf("postgres: the connection was lost during the operation: %w", cmp.Or(o.failure, net.ErrClosed))
	case pg.TxStatus() == 'E': // mutant: tx-of-a-failed-statement-commits
		return o.notReturned(pgx.ErrTxCommitRollback)
	}
	return nil
}

// notReturned wraps the first failure, which decides whether another run may succeed, and the later
// error that it caused.
func (o *Operation) notReturned(came error) error {
	return fmt.Errorf("postgres: a statement failed and the operation did not return its error: %w (%w)", o.failure, came)
}

// enter takes the connection for one call, of the transaction (r is nil) or of a result. After nil the
// caller calls leave, or lend.
func (o *Operation) enter(r *result) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case r != nil && r.closed:
		return errResultClosed
	case o.closed:
		return errUsedLate
	case r != nil && (o.calling || o.open != cmp.Or(r.root, r)):
		o.spoilt = true
		return ErrInUse
	case o.calling, o.spoilt, r == nil && o.open != nil:
		return ErrInUse
	case r == nil && o.ended:
		return errEndedBySQL
	case r == nil && o.unbegun != nil:
		return o.unbegun
	}
	o.calling = true
	return nil
}

func (o *Operation) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calling = false
}

// lend ends the caller's call, and opens r.
func (o *Operation) lend(r *result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open, o.calling = r, false
}

// takeBack goes on with the call of batch that had lent the connection to a part. It fails if a call
// of that still runs.
func (o *Operation) takeBack(batch *result) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calling {
		o.spoilt, err = true, ErrInUse
	}
	o.open, o.calling = batch, true
	return err
}

// first begins the transaction if it has not begun. It returns rows if the statement has gone out with BEGIN.
func (o *Operation) first(ctx context.Context, sql string, args []any, exec bool) (pgx.Rows, error) {
	o.noteText(sql)
	if o.opening == nil {
		return nil, nil
	}
	rows, err := o.opening.Query(ctx, sql, args, exec)
	switch {
	case rows != nil:
		o.opening = nil
	case err != nil:
		o.unbegun = err
	default:
		err = o.begin(ctx)
	}
	return rows, err
}

// begin begins the transaction in a round trip of its own, if it has not begun.
func (o *Operation) begin(ctx context.Context) error {
	if o.opening == nil {
		return nil
	}
	conn, err := o.opening.Begin(ctx, o.change)
	if err != nil {
		o.unbegun = err
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opening, o.conn = nil, conn
	return nil
}

// change calls f unless the operation has returned, which it can't while f runs.
func (o *Operation) change(f func()) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return errUsedLate
	}
	f()
	return nil
}

func (o *Operation) noteText(sql string) {
	t := &o.texts
	t.Several = t.Several || strings.Contains(sql, ";")
	t.Deferrable = t.Deferrable || sqlwords.MentionsDeferrable(sql)
	t.Forgets = t.Forgets || sqlwords.Forgets(sql)
	t.Control = t.Control || sqlwords.AnyControlsTransaction(sql) || strings.Contains(sql, `\`) && o.otherEncoding()
}

// otherEncoding reports whether the server reads texts in another encoding than UTF-8. In some a
// backslash is a part of a character.
func (o *Operation) otherEncoding() bool {
	return o.conn.PgConn().ParameterStatus("client_encoding") != "UTF8"
}

// note records the state that a statement has left, and adds to its error. A message of several
// statements shows only the last one's command tag; the seal finds what note misses.
func (o *Operation) note(err error, tag pgconn.CommandTag) error {
	conflict, noted := sqlstate.Of(err) == sqlstate.Serialization, errors.Is(err, errEndedBySQL)
	o.mu.Lock()
	defer o.mu.Unlock()
	if command := tag.String(); command == "COMMIT" || command == "PREPARE TRANSACTION" {
		o.ended = true
	}
	if o.failure == nil {
		o.failure = err
	}
	if pg := o.conn.PgConn(); o.opening == nil && !pg.IsClosed() && !pg.IsBusy() {
		switch pg.TxStatus() {
		case 'I':
			o.ended = true
		case 'T':
			o.conflict, o.failure = nil, nil // rolled back to a savepoint, if there were any
		}
	}
	if conflict {
		o.conflict = err
	}
	switch {
	case !o.ended, noted:
		return err
	case err == nil:
		return errEndedBySQL
	}
	return errors.Join(err, errEndedBySQL)
}

// bar keeps the transaction from committing, for the reason err.
func (o *Operation) bar(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.barred = err
	}
}

// closedConn returns the closed connection that stands for the real one, whose types may be another's
// to change once the operation has returned.
func (o *Operation) closedConn() *pgx.Conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shown == nil {
		types := pgtype.NewMap()
		if !o.closed {
			types = copyTypes(o.conn.TypeMap())
		}
		o.shown = closedConn(o.conn.Config(), types)
	}
	return o.shown
}

// Package operation implements the pgx.Tx of an operation, which hides the connection, can't end the transaction,
// and fails once the operation has returned.
package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
)

// Operation is one operation's use of a connection. One call at a time may use it, only that of the open result if
// there is one, and none after the operation has returned: a goroutine that it left behind must not reach the
// connection's next transaction.
type Operation struct {
	Conn    *pgx.Conn
	Texts   Texts
	tx      tx
	opening Opening // nil once the transaction has begun
	reads   Opening // reads the answer to the first statement; nil once that is closed
	rows    rows    // of the first query
	unbegun error

	mu      sync.Mutex
	calling bool
	open    *result // the only user of the connection, if any
	spoilt  bool    // a result was used while a call ran, and may only seem to have ended
	closed  bool
	shown   *pgx.Conn
	ended   bool
	nested  []*tx // the open savepoints, from the outermost inwards
	// conflict is the error that aborted the transaction. The operation may return another one, or none.
	conflict error
	failure  error // the first since a statement succeeded
	barred   error
}

type Opening interface {
	// Query begins the transaction in one write with sql, and returns its rows, which Close closes. If both results
	// are nil, nothing has run, and Begin has to be called. An error says why the transaction could not begin. exec:
	// no rows are wanted.
	Query(ctx context.Context, sql string, args []any, exec bool) (pgx.Rows, error)
	// Close reads the answer of Query to its end, and so the state of the transaction, and returns the rows' error.
	Close(rows pgx.Rows) error
	// Begin begins the transaction, and may replace the connection, within Operation.Change.
	Begin(ctx context.Context) error
}

type Texts struct {
	Several    bool
	Control    bool
	Deferrable bool
	Forgets    bool
}

const WhatStays = "what a COMMIT of its own wrote stays, without a fence; what a ROLLBACK undid is gone; don't send COMMIT or ROLLBACK: return nil or an error"

var (
	errEndedBySQL = fmt.Errorf("%w by SQL in the operation: "+WhatStays, storage.ErrTxEnded)
	errUsedLate   = fmt.Errorf("%w: it was used after the operation had returned", storage.ErrTxEnded)
	ErrCopy       = fmt.Errorf("%w: postgres: COPY FROM STDIN and COPY TO STDOUT can't be sent as SQL, since nothing would send or read the rows: write them with CopyFrom of the pgx.Tx, read them with SELECT", fence.ErrInvalid)
	ErrInUse      = errors.New("postgres: the transaction is in use by another call or an open result: close Rows and BatchResults, scan each Row, wait for goroutines, and don't use it in what its own calls call back")
)

// Start begins the operation. opening is nil if the transaction has begun.
func (o *Operation) Start(opening Opening) pgx.Tx {
	o.opening, o.tx.o = opening, o
	return &o.tx
}

// Finish ends the operation. A connection that is still in use must not be used for anything else.
func (o *Operation) Finish() (inUse bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	return o.calling || o.open != nil || o.spoilt
}

// Verdict returns why the transaction can't commit after the operation returned err. Call Finish first.
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
	pg := o.Conn.PgConn()
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

func (o *Operation) notReturned(came error) error {
	return fmt.Errorf("postgres: a statement failed and the operation did not return its error: %w (%w)", o.failure, came)
}

// enter takes the connection for a call of the transaction or of r. The caller then calls leave or lend.
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

func (o *Operation) lend(r *result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open, o.calling = r, false
}

// takeBack ends the part to which batch had lent the connection. It fails if a call of that still runs.
func (o *Operation) takeBack(batch *result) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calling {
		o.spoilt, err = true, ErrInUse
	}
	o.open, o.calling = batch, true
	return err
}

func (o *Operation) first(ctx context.Context, sql string, args []any, exec bool) (pgx.Rows, error) {
	if err := o.noteText(sql); err != nil || o.opening == nil {
		return nil, err
	}
	rows, err := o.opening.Query(ctx, sql, args, exec)
	switch {
	case rows != nil:
		o.reads, o.opening = o.opening, nil
	case err != nil:
		o.unbegun = err
	default:
		err = o.begin(ctx)
	}
	return rows, err
}

func (o *Operation) close(rows pgx.Rows) error {
	if first := o.reads; first != nil {
		o.reads = nil
		return first.Close(rows)
	}
	rows.Close()
	return rows.Err()
}

func (o *Operation) begin(ctx context.Context) error {
	if o.opening == nil {
		return nil
	}
	if o.unbegun = o.opening.Begin(ctx); o.unbegun == nil {
		o.opening = nil
	}
	return o.unbegun
}

// Change calls f unless the operation has returned, which is its error. It can't return while f runs.
func (o *Operation) Change(f func()) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return errUsedLate
	}
	f()
	return nil
}

// noteText fails if the server would wait for more than sql.
func (o *Operation) noteText(sql string) error {
	if sqlwords.AnyCopies(sql) { // mutant: copy-waits-for-rows-that-nobody-sends
		return ErrCopy
	}
	t := &o.Texts
	// One word may be the name of a prepared COMMIT.
	t.Several = t.Several || strings.Contains(sql, ";") || !strings.ContainsAny(sql, " \n\t")
	t.Deferrable = t.Deferrable || sqlwords.MentionsDeferrable(sql)
	t.Forgets = t.Forgets || sqlwords.Forgets(sql)
	t.Control = t.Control || sqlwords.AnyControlsTransaction(sql) || strings.Contains(sql, `\`) && o.otherEncoding()
	return nil
}

// otherEncoding matters because in some encodings a backslash is part of a character.
func (o *Operation) otherEncoding() bool {
	return o.Conn.PgConn().ParameterStatus("client_encoding") != "UTF8"
}

// note records the state after a statement. Of several statements in a message it sees only the last command tag;
// the seal finds the rest.
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
	if pg := o.Conn.PgConn(); o.opening == nil && !pg.IsClosed() && !pg.IsBusy() {
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

// nest names a savepoint by how many are open, since each other name would be a statement of its own in the server's
// statistics. No two that are open have the same.
func (o *Operation) nest() *tx {
	o.mu.Lock()
	defer o.mu.Unlock()
	inner := &tx{o: o, savepoint: 1}
	if n := len(o.nested); n > 0 {
		inner.savepoint += o.nested[n-1].savepoint
	}
	o.nested = append(o.nested, inner)
	return inner
}

func (o *Operation) nests(t *tx) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.nested, t)
}

// unnest forgets a savepoint, and those inside it.
func (o *Operation) unnest(t *tx) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.nested, t); i >= 0 {
		o.nested = o.nested[:i]
	}
}

func (o *Operation) bar(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.barred = err
	}
}

// closedConn stands for the real connection, whose types may change once this operation has returned.
func (o *Operation) closedConn() *pgx.Conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shown == nil {
		types := pgtype.NewMap()
		if !o.closed {
			types = copyTypes(o.Conn.TypeMap())
		}
		o.shown = closedConn(o.Conn.Config(), types)
	}
	return o.shown
}

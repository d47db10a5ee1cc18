// Package usertx implements the pgx.Tx that a guarded function gets: it hides the connection, can't end the
// transaction, and fails once the function has returned.
package usertx

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

// Handle is one function's use of a connection. One call at a time may use it, only that of the open result if
// there is one, and none after the function has returned: a goroutine that it left behind must not reach the
// connection's next transaction.
type Handle struct {
	Conn    *pgx.Conn
	Texts   Texts
	tx      tx
	pending Beginner // of the transaction; nil once it has begun
	reads   Beginner // reads the answer to the first statement; nil once that is closed
	rows    rows     // of the first query
	unbegun error    // why the transaction could not begin

	mu      sync.Mutex
	calling bool      // a call uses the connection
	open    *result   // the only user of the connection, if any
	spoilt  bool      // a result was used while a call ran, and may only seem to have ended
	closed  bool      // the function has returned
	shown   *pgx.Conn // what Conn returns
	ended   bool      // the function's SQL has ended the transaction
	nested  []*tx     // the open savepoints, from the outermost inwards
	// conflict is the error that aborted the transaction. The function may return another one, or none.
	conflict error
	failure  error // the first since a statement succeeded
	barred   error // why the transaction must not commit
}

// Beginner begins the transaction.
type Beginner interface {
	// Query begins the transaction in one write with sql, and returns its rows, which Close closes. If both results
	// are nil, nothing has run, and Begin has to be called. An error says why the transaction could not begin. exec:
	// no rows are wanted.
	Query(ctx context.Context, sql string, args []any, exec bool) (pgx.Rows, error)
	// Close reads the answer of Query to its end, and so the state of the transaction, and returns the rows' error.
	Close(rows pgx.Rows) error
	// Begin begins the transaction, and may replace the connection, within Handle.Change.
	Begin(ctx context.Context) error
}

// Texts is what the SQL texts that were sent may have done.
type Texts struct {
	Several    bool // one held several statements, or named a prepared one
	Control    bool // one begins or ends a transaction
	Deferrable bool // one mentions deferrable constraints
	Forgets    bool // one makes the session forget its prepared statements
}

const WhatStays = "your function sent COMMIT or ROLLBACK, whose effects are permanent and unfenced: return nil or an error instead"

var (
	errEndedBySQL = fmt.Errorf("%w by SQL in the function: "+WhatStays, storage.ErrTxEnded)
	errUsedLate   = fmt.Errorf("%w: it was used after the function had returned", storage.ErrTxEnded)
	ErrCopy       = fmt.Errorf("%w: postgres: COPY FROM STDIN and COPY TO STDOUT can't be sent as SQL, since nothing would send or read the rows: write them with CopyFrom of the pgx.Tx, read them with SELECT", fence.ErrInvalid)
	ErrInUse      = errors.New("postgres: the transaction is in use by another call or an open result: close Rows and BatchResults, scan each Row, wait for goroutines, and don't use it in what its own calls call back")
)

// Start returns the function's transaction. pending is nil if that has begun.
func (h *Handle) Start(pending Beginner) pgx.Tx {
	h.pending, h.tx.h = pending, h
	return &h.tx
}

// Finish ends the use: the function has returned. A connection that is still in use must not be used for anything else.
func (h *Handle) Finish() (inUse bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return h.calling || h.open != nil || h.spoilt
}

// Verdict returns why the transaction can't commit after the function returned err. Call Finish first.
func (h *Handle) Verdict(err error) error {
	err = h.note(err, pgconn.CommandTag{})
	if h.conflict != nil && sqlstate.Of(err) != sqlstate.Serialization {
		err = errors.Join(h.conflict, err)
	}
	if h.barred != nil {
		return errors.Join(h.barred, err)
	}
	if sqlstate.Of(err) == sqlstate.Aborted && h.failure != nil && !errors.Is(err, h.failure) {
		return h.notReturned(err)
	}
	if err != nil {
		return err
	}
	pg := h.Conn.PgConn()
	switch {
	case h.pending != nil:
		return h.unbegun
	case pg.IsClosed():
		return fmt.Errorf("postgres: the connection was lost while the function ran: %w", cmp.Or(h.failure, net.ErrClosed))
	case pg.TxStatus() == 'E': // mutant: tx-of-a-failed-statement-commits
		return h.notReturned(pgx.ErrTxCommitRollback)
	}
	return nil
}

func (h *Handle) notReturned(came error) error {
	return fmt.Errorf("postgres: a statement failed and the function did not return its error: %w (%w)", h.failure, came)
}

// enter takes the connection for a call of the transaction or of r. The caller then calls leave or lend.
func (h *Handle) enter(r *result) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case r != nil && r.closed:
		return errResultClosed
	case h.closed:
		return errUsedLate
	case r != nil && (h.calling || h.open != cmp.Or(r.root, r)):
		h.spoilt = true
		return ErrInUse
	case h.calling, h.spoilt, r == nil && h.open != nil:
		return ErrInUse
	case r == nil && h.ended:
		return errEndedBySQL
	case r == nil && h.unbegun != nil:
		return h.unbegun
	}
	h.calling = true
	return nil
}

func (h *Handle) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calling = false
}

func (h *Handle) lend(r *result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open, h.calling = r, false
}

// takeBack ends the part to which batch had lent the connection. It fails if a call of that still runs.
func (h *Handle) takeBack(batch *result) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calling {
		h.spoilt, err = true, ErrInUse
	}
	h.open, h.calling = batch, true
	return err
}

func (h *Handle) first(ctx context.Context, sql string, args []any, exec bool) (pgx.Rows, error) {
	if err := h.noteText(sql); err != nil || h.pending == nil {
		return nil, err
	}
	rows, err := h.pending.Query(ctx, sql, args, exec)
	switch {
	case rows != nil:
		h.reads, h.pending = h.pending, nil
	case err != nil:
		h.unbegun = err
	default:
		err = h.begin(ctx)
	}
	return rows, err
}

func (h *Handle) close(rows pgx.Rows) error {
	if first := h.reads; first != nil {
		h.reads = nil
		return first.Close(rows)
	}
	rows.Close()
	return rows.Err()
}

func (h *Handle) begin(ctx context.Context) error {
	if h.pending == nil {
		return nil
	}
	if h.unbegun = h.pending.Begin(ctx); h.unbegun == nil {
		h.pending = nil
	}
	return h.unbegun
}

// Change calls f unless the function has returned, which is its error. It can't return while f runs.
func (h *Handle) Change(f func()) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errUsedLate
	}
	f()
	return nil
}

// noteText fails if the server would wait for more than sql.
func (h *Handle) noteText(sql string) error {
	if sqlwords.AnyCopies(sql) { // mutant: copy-waits-for-rows-that-nobody-sends
		return ErrCopy
	}
	t := &h.Texts
	// One word may be the name of a prepared COMMIT.
	t.Several = t.Several || strings.Contains(sql, ";") || !strings.ContainsAny(sql, " \n\t")
	t.Deferrable = t.Deferrable || sqlwords.MentionsDeferrable(sql)
	t.Forgets = t.Forgets || sqlwords.Forgets(sql)
	t.Control = t.Control || sqlwords.AnyControlsTransaction(sql) || strings.Contains(sql, `\`) && h.otherEncoding()
	return nil
}

// otherEncoding matters because in some encodings a backslash is part of a character.
func (h *Handle) otherEncoding() bool {
	return h.Conn.PgConn().ParameterStatus("client_encoding") != "UTF8"
}

// note records the state after a statement. Of several statements in a message it sees only the last command tag;
// the seal finds the rest.
func (h *Handle) note(err error, tag pgconn.CommandTag) error {
	conflict, noted := sqlstate.Of(err) == sqlstate.Serialization, errors.Is(err, errEndedBySQL)
	h.mu.Lock()
	defer h.mu.Unlock()
	if command := tag.String(); command == "COMMIT" || command == "PREPARE TRANSACTION" {
		h.ended = true
	}
	if h.failure == nil {
		h.failure = err
	}
	if pg := h.Conn.PgConn(); h.pending == nil && !pg.IsClosed() && !pg.IsBusy() {
		switch pg.TxStatus() {
		case 'I':
			h.ended = true
		case 'T':
			h.conflict, h.failure = nil, nil // rolled back to a savepoint, if there were any
		}
	}
	if conflict {
		h.conflict = err
	}
	switch {
	case !h.ended, noted:
		return err
	case err == nil:
		return errEndedBySQL
	}
	return errors.Join(err, errEndedBySQL)
}

// nest names a savepoint by how many are open, since each other name would be a statement of its own in the server's
// statistics. No two that are open have the same.
func (h *Handle) nest() *tx {
	h.mu.Lock()
	defer h.mu.Unlock()
	inner := &tx{h: h, savepoint: 1}
	if n := len(h.nested); n > 0 {
		inner.savepoint += h.nested[n-1].savepoint
	}
	h.nested = append(h.nested, inner)
	return inner
}

func (h *Handle) nests(t *tx) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.nested, t)
}

// unnest forgets a savepoint, and those inside it.
func (h *Handle) unnest(t *tx) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.nested, t); i >= 0 {
		h.nested = h.nested[:i]
	}
}

func (h *Handle) bar(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.barred = err
	}
}

// closedConn stands for the real connection, whose types may change once this function has returned.
func (h *Handle) closedConn() *pgx.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shown == nil {
		types := pgtype.NewMap()
		if !h.closed {
			types = copyTypes(h.Conn.TypeMap())
		}
		h.shown = closedConn(h.Conn.Config(), types)
	}
	return h.shown
}

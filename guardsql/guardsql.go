// Package guardsql lets code written for database/sql, such as an ORM's, run in a guarded transaction:
//
//	guard.Do(ctx, g, "sku/42", guardsql.With(func(ctx context.Context, db *sql.DB) error {
//		return sell(ctx, db, "42", 2)
//	}))
//
// Arguments and results are as with github.com/jackc/pgx/v5/stdlib, except that a column's type has no Length and no
// DecimalSize. The other difference is that all connections of db are one transaction:
//
//   - db.Begin makes a savepoint. Its options must be nil or zero.
//   - One call at a time. While a *sql.Tx is open, only it works; while Rows are open, nothing else does. Anything
//     else returns [ErrInUse] at once: it never waits.
//   - A failed statement aborts the transaction, or the *sql.Tx around it.
//   - Each statement ends with its own context or with that of With, whichever ends first. Commit and Rollback have
//     that of With.
//   - Prepare sends nothing: a mistake in the statement shows when it is first executed.
//   - [sql.Conn.Raw] shows nothing to use: With's caller has the pgx.Tx.
package guardsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// ErrInUse: a statement came while a *sql.Tx or Rows were open, or while another call ran. Nothing was sent.
var ErrInUse = errors.New("guardsql: the transaction is in use")

// ErrLeftOpen: the function of With returned and left a *sql.Tx or Rows open, or a call running.
var ErrLeftOpen = errors.New("guardsql: left open")

var (
	errCalling   = fmt.Errorf("%w: another call runs: one goroutine at a time, and no statement in what a statement calls back", ErrInUse)
	errRows      = fmt.Errorf("%w: Rows are open: read them to their end or close them first, and scan each Row", ErrInUse)
	errSavepoint = fmt.Errorf("%w: a *sql.Tx is open: send statements through it, or end it first", ErrInUse)
	errOver      = fmt.Errorf("guardsql: With has returned, and its DB is closed: wait for goroutines before the function returns: %w", sql.ErrConnDone)
	errOptions   = fmt.Errorf("guardsql: a *sql.Tx is a savepoint of the guarded transaction, and has its isolation level and access mode: begin it without options, and set postgres.Config.Isolation or guard.ReadOnly: %w", errors.ErrUnsupported)
)

// With returns a function for guard.Do. It calls fn with a DB whose statements run in tx, closes the DB when fn
// returns, and returns fn's error.
//
// If fn returns nil and has left a *sql.Tx or Rows open, or a goroutine with a call running, the error is
// [ErrLeftOpen], so that guard rolls back. A *sql.Tx left open is rolled back in any case.
//
// Called by hand, for a value or beside statements through tx, no more than one at a time may use tx, and nothing
// else meanwhile: guardsql.With(fn)(ctx, tx).
func With(fn func(ctx context.Context, db *sql.DB) error) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) (err error) {
		s := &session{base: ctx, tx: tx}
		s.ctx, s.stop = context.WithCancelCause(ctx)
		db := sql.OpenDB(connector{s})
		defer func() {
			left := s.end()
			_ = db.Close()
			if err == nil {
				err = left
			}
		}()
		return fn(ctx, db)
	}
}

// session is what the connections of a DB share.
type session struct {
	base    context.Context
	ctx     context.Context // ends with the session too
	stop    context.CancelCauseFunc
	over    atomic.Bool
	calling atomic.Bool // a statement or Next runs, or begins to

	mu        sync.Mutex // held by what uses tx
	tx        pgx.Tx
	types     *pgtype.Map
	savepoint *savepoint // the open one, if any
	rows      *rows      // the open ones, if any
}

// enter takes the transaction for a statement of c. The caller then calls leave.
func (s *session) enter(c *conn) (pgx.Tx, error) {
	if !s.mu.TryLock() {
		return nil, errCalling
	}
	s.calling.Store(true)
	var err error
	switch {
	case s.over.Load():
		err = errOver
	case s.rows != nil:
		err = errRows
	case s.savepoint == nil:
		return s.tx, nil
	case s.savepoint.conn == c:
		return s.savepoint.tx, nil
	default:
		err = errSavepoint
	}
	s.leave()
	return nil, err
}

func (s *session) leave() {
	s.calling.Store(false)
	s.mu.Unlock()
}

// bound makes a context that ends with ctx, with that of With, and with the session.
func (s *session) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, func() { unlink(); cancel(nil) }
}

// end ends a statement that still runs, closes Rows and rolls back a savepoint, and says which of them there was.
// A savepoint whose context has ended is none: database/sql is about to roll it back.
func (s *session) end() (left error) {
	s.over.Store(true)
	if s.calling.Load() {
		s.stop(errOver)
		left = fmt.Errorf("%w: a call ran on when the function returned: wait for goroutines", ErrLeftOpen)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rows; r != nil {
		left = errors.Join(left, fmt.Errorf("%w: Rows: close them before the function returns", ErrLeftOpen))
		r.close(errOver)
	}
	if p := s.savepoint; p != nil {
		if p.ctx.Err() == nil {
			left = errors.Join(left, fmt.Errorf("%w: a *sql.Tx, which is rolled back: commit it or roll it back before the function returns", ErrLeftOpen))
		}
		left = errors.Join(left, p.leave(p.tx.Rollback))
	}
	s.stop(errOver)
	return left
}

type connector struct{ s *session }

func (c connector) Connect(context.Context) (driver.Conn, error) { return &conn{c.s}, nil }
func (c connector) Driver() driver.Driver                        { return c }

// Open makes a driver.Driver of it, which nothing can use.
func (connector) Open(string) (driver.Conn, error) {
	return nil, fmt.Errorf("guardsql: there is nothing to open: call With: %w", errors.ErrUnsupported)
}

package operation

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// session is shared by the transaction of one operation and the savepoints in it. It lets
// one call, or one open result, use the connection at a time, and none after the operation
// has returned: a goroutine that the operation left behind must not reach a connection that
// runs another transaction by then.
type session struct {
	conn       *pgx.Conn
	opening    Opening // nil once the transaction has begun
	several    bool    // a text that was sent may have held several statements
	control    bool    // a text that was sent may have begun or ended a transaction
	deferrable bool    // a text that was sent may have made something deferrable
	unbegun    error   // why it could not begin; nil if nothing was sent

	mu     sync.Mutex
	inUse  bool      // by a call or an open result
	spoilt bool      // two goroutines used a result at a time, and one of them may still do so
	closed bool      // the operation has returned
	shown  *pgx.Conn // what Conn returns; nil before its first call
	ended  bool      // SQL text ended the transaction
	// conflict is the serialization failure that has aborted the transaction. It is kept
	// because the operation may return another error, or none.
	conflict error
	failure  error // the first error since a statement last went well
	barred   error // why the transaction must not commit, whatever the operation returns
}

// WhatStays says which writes stay, and the remedy. Both hold for every way in which SQL
// can end a transaction.
const WhatStays = "what a COMMIT of its own wrote stays, without a fence; what a ROLLBACK undid is gone; don't send COMMIT or ROLLBACK: return nil or an error"

var (
	errEndedBySQL = fmt.Errorf("%w by SQL in the operation: "+WhatStays, storage.ErrTxEnded)
	errUsedLate   = fmt.Errorf("%w: it was used after the operation had returned", storage.ErrTxEnded)
	// ErrInUse is why a call fails while another one, or an open result, has the
	// connection.
	ErrInUse = errors.New("postgres: the transaction is in use by another call or an open result: close Rows and BatchResults, scan each Row, wait for goroutines, and don't use it in what its own calls call back")
)

// enter takes the connection for one call or result. After nil the caller calls leave.
func (s *session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.unusable()
	if err == nil {
		s.inUse = true
	}
	return err
}

func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse = false
}

// unusable returns why no statement may be sent; nil if one may. mu is held.
func (s *session) unusable() error {
	switch {
	case s.closed:
		return errUsedLate
	case s.inUse, s.spoilt:
		return ErrInUse
	case s.ended:
		return errEndedBySQL
	case s.unbegun != nil:
		return s.unbegun
	}
	return nil
}

// closedConn returns the closed connection that stands for the real one. Once the operation has returned, the
// types of that one may be another's to change.
func (s *session) closedConn() *pgx.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown == nil {
		types := pgtype.NewMap()
		if !s.closed {
			types = copyTypes(s.conn.TypeMap())
		}
		s.shown = closedConn(s.conn.Config(), types)
	}
	return s.shown
}

// spoil gives the connection up: from now on it counts as in use.
func (s *session) spoil() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoilt = true
}

func (s *session) isSpoilt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spoilt
}

// barCommit keeps the transaction from committing, for the reason err.
func (s *session) barCommit(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.barred = err
	}
}

// note records the state that a statement has left, and adds to its error. Command tags
// don't show everything, since a message of several statements has only the last one's; the
// seal finds what note misses.
func (s *session) note(err error, tag pgconn.CommandTag) error {
	conflict, noted := sqlstate.Of(err) == sqlstate.Serialization, errors.Is(err, errEndedBySQL)
	s.mu.Lock()
	defer s.mu.Unlock()
	if command := tag.String(); command == "COMMIT" || command == "PREPARE TRANSACTION" {
		s.ended = true
	}
	if s.failure == nil {
		s.failure = err
	}
	if pg := s.conn.PgConn(); s.opening == nil && !pg.IsClosed() && !pg.IsBusy() {
		switch pg.TxStatus() {
		case 'I':
			s.ended = true
		case 'T':
			s.conflict, s.failure = nil, nil // rolled back to a savepoint, if there were any
		}
	}
	if conflict {
		s.conflict = err
	}
	switch {
	case !s.ended, noted:
		return err
	case err == nil:
		return errEndedBySQL
	}
	return errors.Join(err, errEndedBySQL)
}

// finish ends the session: no further call begins. It reports whether the connection is
// still in use. If it is, the connection must not be used for anything else; if not, the
// operation will never use it again.
func (s *session) finish() (inUse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.inUse || s.spoilt
}

// verdict returns why the transaction can't commit after the operation has returned err;
// nil if it can. That is err itself if err is not nil. finish has returned false before.
func (s *session) verdict(err error) error {
	err = s.note(err, pgconn.CommandTag{})
	if s.conflict != nil && sqlstate.Of(err) != sqlstate.Serialization {
		err = errors.Join(s.conflict, err)
	}
	if s.barred != nil {
		return errors.Join(s.barred, err)
	}
	if sqlstate.Of(err) == sqlstate.Aborted && s.failure != nil && !errors.Is(err, s.failure) {
		return s.notReturned(err)
	}
	if err != nil {
		return err
	}
	pg := s.conn.PgConn()
	switch {
	case s.opening != nil:
		return s.unbegun
	case pg.IsClosed():
		return fmt.Errorf("postgres: the connection was lost during the operation: %w", cmp.Or(s.failure, net.ErrClosed))
	case pg.TxStatus() == 'E': // mutant: tx-of-a-failed-statement-commits
		return s.notReturned(pgx.ErrTxCommitRollback)
	}
	return nil
}

// notReturned adds the first failure to the later error that it caused. It wraps the first
// failure, which decides whether another run may succeed.
func (s *session) notReturned(came error) error {
	return fmt.Errorf("postgres: a statement failed and the operation did not return its error: %w (%w)", s.failure, came)
}

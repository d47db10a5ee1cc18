package operation

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
)

// Opening begins the transaction of an operation, or a member's part of one, when the operation
// runs its first statement.
//
// Exec and Query begin it in one write with that statement. If they return begun, it has begun,
// and the other values are the statement's. If begun is false and err is not nil, it could not
// begin. If both are zero, nothing has run, and Begin is called before the statement.
type Opening interface {
	Exec(ctx context.Context, sql string, args []any) (tag pgconn.CommandTag, begun bool, err error)
	Query(ctx context.Context, sql string, args []any) (rows pgx.Rows, begun bool, err error)
	// Begin begins the transaction in a round trip of its own, and returns its connection:
	// it may take another one, which it does inside change. That fails if the operation has
	// returned meanwhile.
	Begin(ctx context.Context, change func(func()) error) (*pgx.Conn, error)
}

// exec runs a statement; the first one begins the transaction.
func (s *session) exec(ctx context.Context, sql string, args []any) (pgconn.CommandTag, error) {
	s.noteText(sql)
	opening := s.opening
	if opening == nil {
		return s.conn.Exec(ctx, sql, args...)
	}
	if tag, begun, err := opening.Exec(ctx, sql, args); s.opened(begun, err) {
		return tag, err
	}
	if err := s.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return s.conn.Exec(ctx, sql, args...)
}

// query is exec for a query. It returns nil rows if the transaction could not begin.
func (s *session) query(ctx context.Context, sql string, args []any) (pgx.Rows, error) {
	s.noteText(sql)
	opening := s.opening
	if opening == nil {
		return s.conn.Query(ctx, sql, args...)
	}
	if rows, begun, err := opening.Query(ctx, sql, args); s.opened(begun, err) {
		return rows, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	return s.conn.Query(ctx, sql, args...)
}

// opened notes the outcome of an Opening, and reports whether it was one.
func (s *session) opened(begun bool, err error) bool {
	switch {
	case begun:
		s.opening = nil
	case err != nil:
		s.unbegun = err
	}
	return begun || err != nil
}

// begin begins the transaction in a round trip of its own, if it has not begun.
func (s *session) begin(ctx context.Context) error {
	if s.opening == nil {
		return nil
	}
	conn, err := s.opening.Begin(ctx, s.change)
	s.opened(err == nil, err)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conn = conn
	}
	return err
}

// change calls f unless the operation has returned, which it can't while f runs.
func (s *session) change(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errUsedLate
	}
	f()
	return nil
}

// otherEncoding reports whether the server reads texts in another encoding than UTF-8. In some a
// backslash is a part of a character.
func (s *session) otherEncoding() bool {
	return s.conn.PgConn().ParameterStatus("client_encoding") != "UTF8"
}

// noteText notes a text that is going to be sent.
func (s *session) noteText(sql string) {
	s.several = s.several || strings.Contains(sql, ";")
	s.deferrable = s.deferrable || sqlwords.MentionsDeferrable(sql)
	s.control = s.control || sqlwords.AnyControlsTransaction(sql) || strings.Contains(sql, `\`) && s.otherEncoding()
}

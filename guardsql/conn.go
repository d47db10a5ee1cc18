package guardsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// conn is a connection of the DB's pool. Its address tells it from the others.
type conn struct{ s *session }

// CheckNamedValue leaves all conversion to pgx.
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

func (c *conn) Close() error { return nil }

func (c *conn) Ping(ctx context.Context) error {
	_, err := c.ExecContext(ctx, "select 1", nil)
	return err
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	tx, err := c.s.enter(c)
	if err != nil {
		return nil, err
	}
	defer c.s.leave()
	ctx, cancel := c.s.bound(ctx)
	defer cancel()
	tag, err := tx.Exec(ctx, query, values(nil, args)...)
	return driver.RowsAffected(tag.RowsAffected()), final(err)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	tx, err := c.s.enter(c)
	if err != nil {
		return nil, err
	}
	defer c.s.leave()
	ctx, cancel := c.s.bound(ctx)
	base, err := tx.Query(ctx, query, values([]any{resultFormats}, args)...)
	if err != nil {
		cancel()
		return nil, final(err)
	}
	return c.s.open(base, cancel)
}

func (c *conn) Prepare(query string) (driver.Stmt, error) { return &stmt{c, query}, nil }

func (c *conn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return c.Prepare(query)
}

func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if opts != (driver.TxOptions{}) {
		return nil, errOptions
	}
	tx, err := c.s.enter(c)
	if err != nil {
		return nil, err
	}
	defer c.s.leave()
	if c.s.savepoint != nil {
		return nil, errSavepoint
	}
	begin, cancel := c.s.bound(ctx)
	defer cancel()
	nested, err := tx.Begin(begin)
	if err != nil {
		return nil, final(err)
	}
	c.s.savepoint = &savepoint{c, ctx, nested}
	return c.s.savepoint, nil
}

// savepoint is the open *sql.Tx of conn.
type savepoint struct {
	conn *conn
	ctx  context.Context
	tx   pgx.Tx
}

func (p *savepoint) Commit() error   { return p.end(p.tx.Commit) }
func (p *savepoint) Rollback() error { return p.end(p.tx.Rollback) }

// end waits, because database/sql rolls back from a goroutine of its own when a context ends.
func (p *savepoint) end(how func(context.Context) error) error {
	s := p.conn.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.savepoint != p {
		return errOver
	}
	return p.leave(how)
}

func (p *savepoint) leave(how func(context.Context) error) error {
	s := p.conn.s
	s.savepoint = nil
	return final(how(s.base))
}

// stmt is a statement's text. pgx prepares it when it is executed, and caches that.
type stmt struct {
	c     *conn
	query string
}

func (s *stmt) Close() error  { return nil }
func (s *stmt) NumInput() int { return -1 }

func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errors.ErrUnsupported }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errors.ErrUnsupported }

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.ExecContext(ctx, s.query, args)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.query, args)
}

func values(before []any, args []driver.NamedValue) []any {
	for _, arg := range args {
		before = append(before, arg.Value)
	}
	return before
}

// final keeps database/sql from trying again: a driver.Valuer may return driver.ErrBadConn.
func final(err error) error {
	if errors.Is(err, driver.ErrBadConn) {
		return fmt.Errorf("guardsql: %v", err) // not %w
	}
	return err
}

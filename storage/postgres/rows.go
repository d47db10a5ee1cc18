package postgres

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// rows is a result that hides its connection and is looked at when it closes.
type rows struct {
	pgx.Rows
	session *session
	leave   func() // gives the connection back; nil once it has
	err     error
}

func (r *rows) Conn() *pgx.Conn { return nil }

func (r *rows) Close() {
	if r.leave == nil {
		return
	}
	r.Rows.Close()
	r.err = r.session.note(r.Rows.Err(), r.Rows.CommandTag())
	r.leave()
	r.leave = nil
}

func (r *rows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *rows) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.Rows.Err()
}

// row is a result of one row that is looked at when it has been read.
type row struct {
	pgx.Row
	session *session
	leave   func()
}

func (r *row) Scan(dest ...any) error {
	defer r.leave()
	return r.session.note(r.Row.Scan(dest...), pgconn.CommandTag{})
}

// batchResults are results that hide their connection and are looked at one by
// one. The batch has the connection until it is closed, not its single results.
type batchResults struct {
	pgx.BatchResults
	session *session
	leave   func()
	closed  bool
}

func (b *batchResults) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	return tag, b.session.note(err, tag)
}

func (b *batchResults) Query() (pgx.Rows, error) {
	r, err := b.BatchResults.Query()
	return &rows{Rows: r, session: b.session, leave: func() {}}, err
}

func (b *batchResults) QueryRow() pgx.Row {
	return &row{Row: b.BatchResults.QueryRow(), session: b.session, leave: func() {}}
}

// Tx returns nil: a batch can't begin a transaction inside this one.
func (b *batchResults) Tx() pgx.Tx { return nil }

func (b *batchResults) Close() error {
	err := b.session.note(b.BatchResults.Close(), pgconn.CommandTag{})
	if !b.closed {
		b.closed = true
		b.leave()
	}
	return err
}

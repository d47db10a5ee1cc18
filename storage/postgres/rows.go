package postgres

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// rows is a result that hides its connection and is looked at when it closes.
type rows struct {
	pgx.Rows
	tx  *tx
	err error
}

func (r *rows) Conn() *pgx.Conn { return nil }

func (r *rows) Close() {
	r.Rows.Close()
	r.err = r.tx.note(r.Rows.Err(), r.Rows.CommandTag())
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
	tx *tx
}

func (r *row) Scan(dest ...any) error {
	return r.tx.note(r.Row.Scan(dest...), pgconn.CommandTag{})
}

// batchResults are results that hide their connection and are looked at one by
// one.
type batchResults struct {
	pgx.BatchResults
	tx *tx
}

func (b *batchResults) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	return tag, b.tx.note(err, tag)
}

func (b *batchResults) Query() (pgx.Rows, error) {
	r, err := b.BatchResults.Query()
	return &rows{Rows: r, tx: b.tx}, err
}

func (b *batchResults) QueryRow() pgx.Row {
	return &row{Row: b.BatchResults.QueryRow(), tx: b.tx}
}

// Tx returns nil: a batch can't begin a transaction inside this one.
func (b *batchResults) Tx() pgx.Tx { return nil }

func (b *batchResults) Close() error {
	return b.tx.note(b.BatchResults.Close(), pgconn.CommandTag{})
}

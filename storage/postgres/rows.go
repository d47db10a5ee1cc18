package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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
	r.err = r.tx.note(r.Rows.CommandTag())
}

func (r *rows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *rows) Err() error { return errors.Join(r.Rows.Err(), r.err) }

// row is a result of one row that is looked at when it has been read.
type row struct {
	pgx.Row
	tx *tx
}

func (r *row) Scan(dest ...any) error {
	err := r.Row.Scan(dest...)
	if noted := r.tx.note(pgconn.CommandTag{}); noted != nil {
		return errors.Join(err, noted)
	}
	return err
}

// batchResults are results that hide their connection and are looked at one by
// one.
type batchResults struct {
	pgx.BatchResults
	tx *tx
}

func (b *batchResults) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	return tag, errors.Join(err, b.tx.note(tag))
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
	return errors.Join(b.BatchResults.Close(), b.tx.note(pgconn.CommandTag{}))
}

// failedRows is the result of a statement that was not sent.
type failedRows struct{ err error }

func (r failedRows) Close()                        {}
func (r failedRows) Err() error                    { return r.err }
func (r failedRows) Next() bool                    { return false }
func (r failedRows) Scan(...any) error             { return r.err }
func (r failedRows) Values() ([]any, error)        { return nil, r.err }
func (r failedRows) RawValues() [][]byte           { return nil }
func (r failedRows) CommandTag() pgconn.CommandTag { return pgconn.CommandTag{} }
func (r failedRows) Conn() *pgx.Conn               { return nil }

func (r failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (r failedRows) TypeMap() *pgtype.Map                         { return pgtype.NewMap() }

// failedBatch is the result of a batch that was not sent.
type failedBatch struct{ err error }

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return failedRows{b.err}, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRows{b.err} }
func (b failedBatch) Close() error                     { return b.err }
func (b failedBatch) Tx() pgx.Tx                       { return nil }

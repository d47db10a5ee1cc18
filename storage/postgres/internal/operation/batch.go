package operation

import (
	"cmp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// batchResults hides the connection of a batch's results and checks each result. The batch
// uses the connection until it is closed, its single results don't. Like rows, it doesn't
// embed pgx's type.
type batchResults struct {
	result
	base   pgx.BatchResults
	open   *rows // the last result that was given out
	read   bool  // a result was asked for
	failed error // of the first callback that failed
}

var _ pgx.BatchResults = (*batchResults)(nil)

// next closes the last result, as pgx does on the server's side only: its Rows
// would go on to read what comes next on the connection. mu is held.
func (b *batchResults) next() error {
	if b.open == nil {
		return nil
	}
	b.open.Close()
	if !b.open.isClosed() {
		return ErrInUse
	}
	b.open = nil
	return nil
}

func (b *batchResults) Exec() (pgconn.CommandTag, error) {
	if err := b.enter(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer b.mu.Unlock()
	if err := b.next(); err != nil {
		return pgconn.CommandTag{}, err
	}
	b.read = true
	tag, err := b.base.Exec()
	return tag, b.session.note(err, tag)
}

func (b *batchResults) Query() (pgx.Rows, error) {
	r, err := b.query()
	if r == nil {
		return failedRows(err)
	}
	return r, err
}

func (b *batchResults) QueryRow() pgx.Row {
	r, err := b.query()
	if r == nil {
		return failedRow(err)
	}
	return row{r}
}

// query returns nil rows if the query can't be sent.
func (b *batchResults) query() (*rows, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	if err := b.next(); err != nil {
		return nil, err
	}
	b.read = true
	base, err := b.base.Query()
	b.open = &rows{result: result{session: b.session}, base: base}
	if err != nil {
		b.open.Close()
	}
	return b.open, err
}

// Tx returns nil: a batch can't begin a transaction inside this one.
func (b *batchResults) Tx() pgx.Tx { return nil }

func (b *batchResults) Close() error {
	switch err := b.enter(); err {
	case nil:
		defer b.mu.Unlock()
	case errResultClosed:
		return b.err
	default:
		return err
	}
	if err := b.next(); err != nil {
		return err
	}
	closed := b.base.Close()
	b.end(b.session.note(cmp.Or(b.failed, closed), pgconn.CommandTag{}))
	return b.err
}

// expire makes the arguments of a callback unusable once the callback has returned.
func (b *batchResults) expire() error {
	switch err := b.enter(); err {
	case nil:
		defer b.mu.Unlock()
	case errResultClosed:
		return nil
	default:
		return err
	}
	err := b.next()
	b.end(err)
	return err
}

// hide returns a copy of batch whose callbacks and rewriters don't get the connection. Each query has
// a callback, so that Close notes the results that were not read.
func (b *batchResults) hide(batch *pgx.Batch) *pgx.Batch {
	hidden := *batch
	hidden.QueuedQueries = make([]*pgx.QueuedQuery, len(batch.QueuedQueries))
	for i, q := range batch.QueuedQueries {
		b.session.noteText(q.SQL)
		query := *q
		query.Arguments = b.session.hideFromRewriters(q.Arguments)
		query.Fn = b.callback(q.Fn)
		hidden.QueuedQueries[i] = &query
	}
	return &hidden
}

// callback returns a callback that calls f, unless f is nil or a callback has failed before, and reads
// the result if f didn't. Close returns the error of f: pgx would discard the results after it.
func (b *batchResults) callback(f func(pgx.BatchResults) error) func(pgx.BatchResults) error {
	return func(base pgx.BatchResults) error {
		part := &batchResults{result: result{session: b.session}, base: base}
		if f != nil && b.failed == nil {
			b.failed = f(part)
		}
		if !part.read {
			if _, err := part.Exec(); !part.read {
				return err // pgx would call back for ever
			}
		}
		b.failed = cmp.Or(b.failed, part.expire())
		return nil
	}
}

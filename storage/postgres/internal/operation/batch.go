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
	base pgx.BatchResults
	open *rows // the last result that was given out
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
	b.end(b.session.note(b.base.Close(), pgconn.CommandTag{}))
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

// hide returns a copy of b whose callbacks and rewriters don't get the connection.
func (s *session) hide(b *pgx.Batch) *pgx.Batch {
	hidden := *b
	hidden.QueuedQueries = make([]*pgx.QueuedQuery, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		s.noteText(q.SQL)
		query := *q
		query.Arguments = s.hideFromRewriters(q.Arguments)
		if f := q.Fn; f != nil {
			query.Fn = func(base pgx.BatchResults) error {
				part := &batchResults{result: result{session: s}, base: base}
				return cmp.Or(f(part), part.expire())
			}
		}
		hidden.QueuedQueries[i] = &query
	}
	return &hidden
}

package operation

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// result is the common part of an operation's results: one goroutine at a time uses a
// result, and a closed one never touches the connection again, which by then may run
// another transaction.
type result struct {
	o     *Operation
	whole bool // it has the connection, and gives it back; a part of a batch doesn't

	mu     sync.Mutex // held during each call
	closed bool
	err    error // that the result ended with; not written once it is closed
}

var errResultClosed = errors.New("postgres: the result is closed")

// enter begins a call. After nil the caller unlocks mu; after errResultClosed it may read
// fields that no longer change.
func (r *result) enter() error {
	if !r.mu.TryLock() {
		r.o.spoilt.Store(true)
		return ErrInUse
	}
	switch {
	case r.closed:
		r.mu.Unlock()
		return errResultClosed
	case r.o.spoilt.Load():
		r.mu.Unlock()
		return ErrInUse
	}
	return nil
}

func (r *result) isClosed() bool {
	err := r.enter()
	if err == nil {
		r.mu.Unlock()
	}
	return err == errResultClosed
}

// end closes the result, which ended with err. mu is held.
func (r *result) end(err error) {
	r.closed, r.err = true, err
	if r.whole {
		r.o.leave()
	}
}

// rows hides the connection of a pgx.Rows and checks the result when it closes. It doesn't
// embed pgx's type, so that a method which pgx adds later can't bypass it.
type rows struct {
	result
	base   pgx.Rows
	fields []pgconn.FieldDescription
	types  *pgtype.Map
}

var _ pgx.Rows = (*rows)(nil)

// Conn returns nil: the connection's own methods would bypass the guard.
func (r *rows) Conn() *pgx.Conn { return nil }

func (r *rows) Close() {
	if r.enter() == nil {
		defer r.mu.Unlock()
		r.close(nil)
	}
}

// close closes the rows after err, if that is not nil. mu is held.
func (r *rows) close(err error) {
	r.base.Close()
	if err == nil {
		err = r.base.Err()
	}
	r.end(r.o.note(err, r.base.CommandTag()))
}

func (r *rows) Next() bool {
	if r.enter() != nil {
		return false
	}
	defer r.mu.Unlock()
	if r.base.Next() {
		return true
	}
	r.close(nil)
	return false
}

func (r *rows) Err() error {
	switch err := r.enter(); err {
	case nil:
		defer r.mu.Unlock()
		return r.base.Err()
	case errResultClosed:
		return r.err
	default:
		return err
	}
}

// Scan scans as pgx does.
func (r *rows) Scan(dest ...any) error {
	if err := r.enter(); err != nil {
		return err
	}
	if len(dest) == 1 {
		if target, ok := dest[0].(pgx.RowScanner); ok {
			r.mu.Unlock()
			return r.scanRow(target)
		}
	}
	defer r.mu.Unlock()
	err := r.base.Scan(dest...)
	if err != nil {
		r.close(err)
	}
	return err
}

// scanRow gives target these rows: pgx would give it its own, with their
// connection.
func (r *rows) scanRow(target pgx.RowScanner) error {
	err := target.ScanRow(r)
	if err != nil && r.enter() == nil {
		defer r.mu.Unlock()
		r.close(err)
	}
	return err
}

func (r *rows) Values() ([]any, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	values, err := r.base.Values()
	if err != nil {
		r.close(err)
	}
	return values, err
}

func (r *rows) RawValues() [][]byte {
	if r.enter() != nil {
		return nil
	}
	defer r.mu.Unlock()
	return r.base.RawValues()
}

func (r *rows) CommandTag() pgconn.CommandTag {
	if !r.isClosed() {
		return pgconn.CommandTag{}
	}
	return r.base.CommandTag()
}

// FieldDescriptions returns a copy: the connection's next result overwrites pgx's.
func (r *rows) FieldDescriptions() []pgconn.FieldDescription {
	switch r.enter() {
	case nil:
		defer r.mu.Unlock()
		if r.fields == nil {
			r.fields = slices.Clone(r.base.FieldDescriptions())
		}
	case ErrInUse:
		return nil
	}
	return r.fields
}

// TypeMap returns a copy: a type that is registered in pgx's would stay for the
// connection's next user.
func (r *rows) TypeMap() *pgtype.Map {
	switch r.enter() {
	case nil:
		defer r.mu.Unlock()
		if r.types == nil {
			r.types = copyTypes(r.base.TypeMap())
		}
	case ErrInUse:
		return nil
	}
	return r.types
}

func copyTypes(m *pgtype.Map) *pgtype.Map {
	types := m.Copy()
	types.TryWrapEncodePlanFuncs = slices.Clone(m.TryWrapEncodePlanFuncs)
	types.TryWrapScanPlanFuncs = slices.Clone(m.TryWrapScanPlanFuncs)
	return types
}

// row is the first row of rows.
type row struct{ rows *rows }

// Scan scans as pgx does, and closes the result.
func (r row) Scan(dest ...any) error {
	defer r.rows.Close()
	for _, d := range dest {
		if _, ok := d.(*pgtype.DriverBytes); ok {
			return errors.New("postgres: QueryRow can't scan into a *pgtype.DriverBytes, which is valid only until its result is closed")
		}
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

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
	r, err := b.query()
	if r == nil {
		return pgconn.CommandTag{}, err
	}
	r.Close()
	return r.CommandTag(), r.Err()
}

func (b *batchResults) Query() (pgx.Rows, error) {
	r, err := b.query()
	if r == nil {
		return failed(err).Query()
	}
	return r, err
}

func (b *batchResults) QueryRow() pgx.Row {
	r, err := b.query()
	if r == nil {
		return failed(err).QueryRow()
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
	b.open = &rows{result: result{o: b.o}, base: base}
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
	b.end(b.o.note(cmp.Or(b.failed, closed), pgconn.CommandTag{}))
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
		b.o.noteText(q.SQL)
		query := *q
		query.Arguments = b.o.hideFromRewriters(q.Arguments)
		query.Fn = b.callback(q.Fn)
		hidden.QueuedQueries[i] = &query
	}
	return &hidden
}

// callback returns a callback that calls f, unless f is nil or a callback has failed before, and reads
// the result if f didn't. Close returns the error of f: pgx would discard the results after it.
func (b *batchResults) callback(f func(pgx.BatchResults) error) func(pgx.BatchResults) error {
	return func(base pgx.BatchResults) error {
		part := &batchResults{result: result{o: b.o}, base: base}
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

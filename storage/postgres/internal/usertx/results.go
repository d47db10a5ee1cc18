package usertx

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// result never touches the connection again once it is closed: by then that may run another transaction.
type result struct {
	h    *Handle
	root *result

	// Guarded by h.mu:
	closed bool
	err    error
}

var errResultClosed = errors.New("postgres: the result is closed")

// enter begins a call. The caller then calls h.leave. After errResultClosed fields no longer change.
func (r *result) enter() error { return r.h.enter(r) }

func (r *result) end(err error) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	r.closed, r.err = true, err
	if r.h.open == r {
		r.h.open = nil
	}
}

// rows doesn't embed pgx.Rows, whose later methods would bypass it.
type rows struct {
	result
	base   pgx.Rows
	fields []pgconn.FieldDescription
	types  *pgtype.Map
}

var _ pgx.Rows = (*rows)(nil)

// Conn returns nil, because the connection's methods would bypass the guard.
func (r *rows) Conn() *pgx.Conn { return nil }

func (r *rows) Close() {
	if r.enter() == nil {
		defer r.h.leave()
		r.close(nil)
	}
}

func (r *rows) close(err error) {
	closed := r.h.close(r.base)
	r.end(r.h.note(cmp.Or(err, closed), r.base.CommandTag()))
}

func (r *rows) Next() bool {
	if r.enter() != nil {
		return false
	}
	defer r.h.leave()
	if r.base.Next() {
		return true
	}
	r.close(nil)
	return false
}

func (r *rows) Err() error {
	switch err := r.enter(); err {
	case nil:
		defer r.h.leave()
		return r.base.Err()
	case errResultClosed:
		return r.err
	default:
		return err
	}
}

// Scan gives a pgx.RowScanner these rows. pgx would give it its own, with their connection.
func (r *rows) Scan(dest ...any) (err error) {
	if len(dest) == 1 {
		if target, ok := dest[0].(pgx.RowScanner); ok {
			if err = target.ScanRow(r); err != nil && r.enter() == nil {
				defer r.h.leave()
				r.close(err)
			}
			return err
		}
	}
	if err = r.enter(); err != nil {
		return err
	}
	defer r.h.leave()
	if err = r.base.Scan(dest...); err != nil {
		r.close(err)
	}
	return err
}

func (r *rows) Values() ([]any, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.h.leave()
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
	defer r.h.leave()
	return r.base.RawValues()
}

func (r *rows) CommandTag() (tag pgconn.CommandTag) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	if r.closed {
		tag = r.base.CommandTag()
	}
	return tag
}

// FieldDescriptions returns a copy: the connection's next result overwrites pgx's.
func (r *rows) FieldDescriptions() []pgconn.FieldDescription {
	switch r.enter() {
	case nil:
		defer r.h.leave()
		if r.fields == nil {
			r.fields = slices.Clone(r.base.FieldDescriptions())
		}
	case ErrInUse:
		return nil
	}
	return r.fields
}

// TypeMap returns a copy: types registered in pgx's would stay for the connection's next user.
func (r *rows) TypeMap() *pgtype.Map {
	switch r.enter() {
	case nil:
		defer r.h.leave()
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

type row struct{ rows *rows }

func (r row) Scan(dest ...any) error {
	defer r.rows.Close()
	for _, d := range dest {
		if _, ok := d.(*pgtype.DriverBytes); ok {
			return errors.New("postgres: QueryRow can't scan into a *pgtype.DriverBytes, which is valid only until its result is closed")
		}
	}
	if !r.rows.Next() {
		return cmp.Or(r.rows.Err(), pgx.ErrNoRows)
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

type batchResults struct {
	result
	base   pgx.BatchResults
	last   *rows
	read   bool
	failed error
}

var _ pgx.BatchResults = (*batchResults)(nil)

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

func (b *batchResults) query() (*rows, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.h.leave()
	return b.next()
}

func (b *batchResults) next() (*rows, error) {
	b.closeLast()
	b.read = true
	base, err := b.base.Query()
	b.last = &rows{result: result{h: b.h, root: &b.result}, base: base}
	if err != nil {
		b.last.close(nil)
	}
	return b.last, err
}

// closeLast closes the last result, since pgx's own Rows would read what comes next on the connection.
func (b *batchResults) closeLast() {
	if b.last != nil && !b.last.closed {
		b.last.close(nil)
	}
}

// Tx returns nil: a batch can't begin a transaction inside this one.
func (b *batchResults) Tx() pgx.Tx { return nil }

func (b *batchResults) Close() error {
	switch err := b.enter(); err {
	case nil:
		defer b.h.leave()
	case errResultClosed:
		return b.err
	default:
		return err
	}
	b.closeLast()
	closed := b.base.Close()
	b.end(b.h.note(cmp.Or(b.failed, closed), pgconn.CommandTag{}))
	return b.err
}

// hide keeps the connection from callbacks and rewriters. Each query has a callback, so that Close notes results
// that were not read.
func (b *batchResults) hide(batch *pgx.Batch) (*pgx.Batch, error) {
	hidden := *batch
	hidden.QueuedQueries = make([]*pgx.QueuedQuery, len(batch.QueuedQueries))
	for i, q := range batch.QueuedQueries {
		if err := b.h.noteText(q.SQL); err != nil {
			return nil, fmt.Errorf("statement %d of the batch: %w: %s", i+1, err, q.SQL)
		}
		query := *q
		query.Arguments = b.h.hideFromRewriters(q.Arguments)
		query.Fn = b.callback(q.Fn)
		hidden.QueuedQueries[i] = &query
	}
	return &hidden, nil
}

func (b *batchResults) callback(f func(pgx.BatchResults) error) func(pgx.BatchResults) error {
	return func(base pgx.BatchResults) error {
		part := &batchResults{result: result{h: b.h}, base: base}
		if f != nil && b.failed == nil {
			b.h.lend(&part.result)
			b.failed = f(part)
			b.failed = cmp.Or(b.failed, b.h.takeBack(&b.result))
		}
		switch {
		case part.read:
		case part.closed:
			return errResultClosed // pgx would call back for ever
		default:
			_, _ = part.next()
		}
		part.closeLast()
		part.end(nil)
		return nil
	}
}

package operation

import (
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
	session *session
	whole   bool // it has the connection, and gives it back; a part of a batch doesn't

	mu     sync.Mutex // held during each call
	closed bool
	err    error // that the result ended with; not written once it is closed
}

var errResultClosed = errors.New("postgres: the result is closed")

// enter begins a call. After nil the caller unlocks mu; after errResultClosed it may read
// fields that no longer change.
func (r *result) enter() error {
	if !r.mu.TryLock() {
		r.session.spoil()
		return ErrInUse
	}
	switch {
	case r.closed:
		r.mu.Unlock()
		return errResultClosed
	case r.session.isSpoilt():
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
		r.session.leave()
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
	r.end(r.session.note(err, r.base.CommandTag()))
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

package guardsql

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// resultFormats, value and the methods of column types give what pgx's stdlib gives.
var resultFormats = pgx.QueryResultFormatsByOID{
	pgtype.BoolOID: 1, pgtype.ByteaOID: 1, pgtype.CIDOID: 1, pgtype.DateOID: 1, pgtype.Float4OID: 1,
	pgtype.Float8OID: 1, pgtype.Int2OID: 1, pgtype.Int4OID: 1, pgtype.Int8OID: 1, pgtype.OIDOID: 1,
	pgtype.TimestampOID: 1, pgtype.TimestamptzOID: 1, pgtype.XIDOID: 1,
}

type rows struct {
	s      *session
	base   pgx.Rows
	cancel func()
	fields []pgconn.FieldDescription
	ahead  bool  // base is at a row that Next has not returned
	end    error // what Next returns when base is closed
}

// open reads the first row, since only then the columns and an error of the statement are known.
func (s *session) open(base pgx.Rows, cancel func()) (driver.Rows, error) {
	r := &rows{s: s, base: base, cancel: cancel}
	s.rows = r
	r.ahead = base.Next()
	r.fields = base.FieldDescriptions()
	if s.types == nil {
		s.types = base.TypeMap()
	}
	if !r.ahead {
		if r.close(io.EOF); r.end != io.EOF {
			return nil, r.end
		}
	}
	return r, nil
}

// close closes base. Next then returns its error, or else end.
func (r *rows) close(end error) {
	r.base.Close()
	r.cancel()
	r.s.rows, r.end = nil, end
	if err := r.base.Err(); err != nil {
		r.end = final(err)
	}
}

// Close waits, because database/sql closes from a goroutine of its own when a context ends.
func (r *rows) Close() error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.end == nil {
		r.close(io.EOF)
	}
	if errors.Is(r.end, io.EOF) {
		return nil
	}
	return r.end
}

func (r *rows) Next(dest []driver.Value) error {
	r.s.mu.Lock()
	r.s.calling.Store(true)
	defer r.s.leave()
	switch {
	case r.end != nil:
	case r.s.over.Load():
		return errOver
	case !r.ahead && !r.base.Next():
		r.close(io.EOF)
	}
	if r.end != nil {
		return r.end
	}
	r.ahead = false
	for i, src := range r.base.RawValues() {
		dest[i] = nil
		if src == nil {
			continue
		}
		var err error
		if dest[i], err = value(r.s.types, r.fields[i], src); err != nil {
			return final(fmt.Errorf("convert field %d failed: %w", i, err))
		}
	}
	return nil
}

func value(m *pgtype.Map, f pgconn.FieldDescription, src []byte) (driver.Value, error) {
	oid := f.DataTypeOID
	if t, ok := m.TypeForOID(oid); ok && resultFormats[oid] == pgx.BinaryFormatCode {
		return t.Codec.DecodeDatabaseSQLValue(m, oid, f.Format, src)
	}
	switch oid {
	case pgtype.JSONOID, pgtype.JSONBOID, pgtype.XMLOID:
		var d []byte
		err := m.Scan(oid, f.Format, src, &d)
		return d, err
	}
	var d string
	err := m.Scan(oid, f.Format, src, &d)
	return d, err
}

func (r *rows) Columns() []string {
	names := make([]string, len(r.fields))
	for i, f := range r.fields {
		names[i] = f.Name
	}
	return names
}

func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	oid := r.fields[i].DataTypeOID
	if t, ok := r.s.types.TypeForOID(oid); ok {
		return strings.ToUpper(t.Name)
	}
	return strconv.FormatUint(uint64(oid), 10)
}

var scanTypes = map[uint32]reflect.Type{
	pgtype.BoolOID: reflect.TypeFor[bool](), pgtype.ByteaOID: reflect.TypeFor[[]byte](),
	pgtype.Int2OID: reflect.TypeFor[int16](), pgtype.Int4OID: reflect.TypeFor[int32](), pgtype.Int8OID: reflect.TypeFor[int64](),
	pgtype.Float4OID: reflect.TypeFor[float32](), pgtype.Float8OID: reflect.TypeFor[float64](), pgtype.NumericOID: reflect.TypeFor[float64](),
	pgtype.DateOID: reflect.TypeFor[time.Time](), pgtype.TimestampOID: reflect.TypeFor[time.Time](), pgtype.TimestamptzOID: reflect.TypeFor[time.Time](),
}

func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	if t, ok := scanTypes[r.fields[i].DataTypeOID]; ok {
		return t
	}
	return reflect.TypeFor[string]()
}

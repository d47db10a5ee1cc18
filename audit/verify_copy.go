package audit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// copyOut runs a query and calls each with the columns of each row, as PostgreSQL sends them in
// binary; nil is null. each keeps nothing of them.
func copyOut(ctx context.Context, conn *pgx.Conn, query string, each func(row) error) error {
	r := &rowReader{each: each}
	_, err := conn.PgConn().CopyTo(ctx, r, "copy ("+query+") to stdout (format binary)")
	if err == nil && !r.ended {
		err = errNotCopy
	}
	return err
}

// row is the columns of a row in binary.
type row [][]byte

var errNotCopy = errors.New("not the answer to COPY in binary")

// copyHead is what the answer begins with: a signature, flags, and the length of what extends
// the head.
var copyHead = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")

// rowReader splits the answer to COPY, in pieces of any size, into rows.
type rowReader struct {
	each    func(row) error
	rest    []byte // of a piece, which doesn't end with a row
	columns row
	started bool
	ended   bool
}

func (r *rowReader) Write(piece []byte) (int, error) {
	data := piece
	if len(r.rest) > 0 {
		r.rest = append(r.rest, piece...)
		data = r.rest
	}
	if !r.started {
		if len(data) < len(copyHead) {
			r.rest = append([]byte(nil), data...)
			return len(piece), nil
		}
		if !bytes.Equal(data[:len(copyHead)], copyHead) {
			return 0, errNotCopy
		}
		r.started, data = true, data[len(copyHead):]
	}
	for len(data) > 0 {
		n := r.split(data)
		if n == 0 {
			break
		}
		if data = data[n:]; r.ended {
			break
		}
		if err := r.each(r.columns); err != nil {
			return 0, err
		}
	}
	r.rest = append(r.rest[:0], data...)
	return len(piece), nil
}

// split takes the columns of the row that data begins with, and returns its length; 0 if data
// ends before the row does.
func (r *rowReader) split(data []byte) int {
	if len(data) < 2 {
		return 0
	}
	count := int16(binary.BigEndian.Uint16(data))
	if r.ended = count < 0; r.ended {
		return 2
	}
	at := 2
	r.columns = r.columns[:0]
	for range count {
		if len(data) < at+4 {
			return 0
		}
		size := int(int32(binary.BigEndian.Uint32(data[at:])))
		at += 4
		if size < 0 {
			r.columns = append(r.columns, nil)
			continue
		}
		if len(data) < at+size {
			return 0
		}
		r.columns = append(r.columns, data[at:at+size:at+size])
		at += size
	}
	return at
}

// columns reads a row column by column. After an error all values are zero.
type columns struct {
	row row
	err error
}

// next returns the next column, which has size bytes unless it is null; a size of -1 is any.
func (c *columns) next(size int) []byte {
	if c.err != nil {
		return nil
	}
	if len(c.row) == 0 {
		c.err = errors.New("a row lacks a column")
		return nil
	}
	value := c.row[0]
	c.row = c.row[1:]
	if value != nil && size >= 0 && len(value) != size {
		c.err = fmt.Errorf("a column has %d bytes, want %d: its type was changed", len(value), size)
		return nil
	}
	return value
}

// int64 returns 0 for null.
func (c *columns) int64() (n int64) {
	if v := c.next(8); v != nil {
		n = int64(binary.BigEndian.Uint64(v))
	}
	return n
}

func (c *columns) int32() (n int32) {
	if v := c.next(4); v != nil {
		n = int32(binary.BigEndian.Uint32(v))
	}
	return n
}

func (c *columns) text() string { return string(c.next(-1)) }

func (c *columns) isNull() bool { return c.err == nil && len(c.row) > 0 && c.row[0] == nil }

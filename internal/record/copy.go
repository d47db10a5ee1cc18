package record

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"github.com/jackc/pgx/v5"
)

// CopyOut runs a query by COPY, which is the fastest way, and calls each with the columns of each
// row. each keeps nothing of them, and reads all of them.
func CopyOut(ctx context.Context, conn *pgx.Conn, query string, each func(*Columns) error) error {
	c := new(Columns)
	r := &rowReader{each: func(row [][]byte) error {
		*c = Columns{row: row}
		if err := each(c); err != nil {
			return err
		}
		return c.err
	}}
	_, err := conn.PgConn().CopyTo(ctx, r, "copy ("+query+") to stdout (format binary)")
	if err == nil && !r.ended {
		err = errNotCopy
	}
	return err
}

var errNotCopy = errors.New("not the answer to COPY in binary")

// copyHead is what the answer begins with: a signature, flags, and the length of what extends
// the head.
var copyHead = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")

// rowReader splits the answer to COPY, in pieces of any size, into rows.
type rowReader struct {
	each    func(row [][]byte) error
	rest    []byte // of a piece, which doesn't end with a row
	columns [][]byte
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

package record

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Fence is a row of the table resource.
type Fence struct {
	Number    int32  `json:"number" column:"id"`
	Name      string `json:"name"`
	Timeline  int32  `json:"timeline"`
	Epoch     int64  `json:"epoch"`
	Token     int64  `json:"token"`
	PrevToken int64  `json:"prev_token"`
	ClaimSeq  int64  `json:"claim_seq"`
	ClaimedAt Time   `json:"claimed_at"`
	Seq       int64  `json:"seq"`
	Tx        int64  `json:"tx,string"`
	Sealed    uint64 `json:"sealed,string"`
	Hash      Hash   `json:"hash"`
	Holder    string `json:"holder"`
}

// Checkpoint is a row of the table checkpoint.
type Checkpoint struct {
	First    int64 `json:"first"`
	Hash     Hash  `json:"hash"` // of the entry before First
	PrunedAt Time  `json:"pruned_at"`
}

// Hold is a row of the table hold.
type Hold struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Role   string `json:"role"`
	At     Time   `json:"at"`
}

// Rejection is a row of the table rejection.
type Rejection struct {
	ID            int64  `json:"id"`
	Resource      string `json:"resource"`
	Reason        string `json:"reason"`
	Stage         string `json:"stage"`
	Epoch         int64  `json:"epoch"`
	Token         int64  `json:"token"`
	Holder        string `json:"holder"`
	CurrentEpoch  int64  `json:"current_epoch"`
	CurrentToken  int64  `json:"current_token"`
	CurrentHolder string `json:"current_holder"`
	CurrentSince  *Time  `json:"current_since,omitempty"`
	Count         int64  `json:"count"`
	FirstAt       Time   `json:"first_at"`
	LastAt        Time   `json:"last_at"`
}

// Operation is a row of the table operation, without the result, which is the caller's data.
type Operation struct {
	Resource int32  `json:"resource"`
	Key      string `json:"key"`
	Request  Hash   `json:"request"`
	Tx       int64  `json:"tx,string"`
	At       Time   `json:"at"`
}

// Setting has the columns of the table setting that bound claims, the highest epoch of the table epoch_raise, and the
// names in the table queue, one in each line.
type Setting struct {
	Epoch        int64 `json:"epoch"`
	Token        int64 `json:"token"`
	MaxTokenJump int64 `json:"max_token_jump"`
	Raised       int64 `json:"raised"`

	Queues string `json:"queues,omitempty"`
}

// The columns of each table, with the alias of the table. What is a domain is sent as its base type.
var (
	EntryColumns      = columnsOf("h", Entry{})
	FenceColumns      = columnsOf("r", Fence{})
	CheckpointColumns = columnsOf("c", Checkpoint{})
	HoldColumns       = columnsOf("o", Hold{})
	OperationColumns  = columnsOf("k", Operation{})
	RejectionColumns  = columnsOf("f", Rejection{})
)

func columnsOf(alias string, row any) string {
	var names []string
	for _, field := range reflect.VisibleFields(reflect.TypeOf(row)) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, alias+"."+cmp.Or(field.Tag.Get("column"), name))
	}
	return strings.Join(names, ", ")
}

// Each runs a query, and calls each for every row, when its columns are in the places: pointers to values, to rows of
// tables, and to pointers to these, which become nil where the (first) column is null. Elsewhere null is 0 or "". It
// stops at the first error of each, and closes the connection then.
func Each(ctx context.Context, conn *pgx.Conn, query string, places []any, each func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows := conn.PgConn().ExecParams(ctx, query, nil, nil, nil, []int16{pgx.BinaryFormatCode})
	for rows.NextRow() {
		c := columns{row: rows.Values()}
		for _, place := range places {
			c.read(place)
		}
		err := c.err
		if err == nil {
			err = each()
		}
		if err != nil {
			cancel() // instead of reading all that is left
			_, _ = rows.Close()
			return err
		}
	}
	_, err := rows.Close()
	return err
}

// columns are those of a row, as PostgreSQL sends them in binary, that were not read yet; nil is null.
type columns struct {
	row [][]byte
	err error // such as a column whose type was changed
}

func (c *columns) read(place any) {
	switch p := place.(type) {
	case *int32:
		*p = int32(c.integer(4))
	case *int64:
		*p = c.integer(8)
	case *uint64:
		*p = uint64(c.integer(8))
	case *Time:
		*p = Time(c.integer(8))
	case *Kind:
		*p = Kind(c.integer(1))
	case *string:
		*p = string(c.next(-1))
	case *Hash:
		*p = bytes.Clone(c.next(-1))
	default:
		c.readInto(reflect.ValueOf(place).Elem())
	}
}

func (c *columns) readInto(place reflect.Value) {
	if place.Kind() == reflect.Struct {
		for i := range place.NumField() {
			c.read(place.Field(i).Addr().Interface())
		}
		return
	}
	value, null := reflect.New(place.Type().Elem()), len(c.row) > 0 && c.row[0] == nil
	c.read(value.Interface())
	if place.SetZero(); !null {
		place.Set(value)
	}
}

func (c *columns) integer(size int) (n int64) {
	for _, b := range c.next(size) {
		n = n<<8 | int64(b)
	}
	return n
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
	}
	return value
}

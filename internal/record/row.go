package record

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Each runs a query and calls each with the columns of each row, which are valid until it returns. It
// stops at the first error of each, and closes the connection then.
func Each(ctx context.Context, conn *pgx.Conn, query string, each func(*Columns) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows := conn.PgConn().ExecParams(ctx, query, nil, nil, nil, []int16{pgx.BinaryFormatCode})
	c := new(Columns)
	for rows.NextRow() {
		*c = Columns{row: rows.Values()}
		err := each(c)
		if err = cmp.Or(err, c.err); err != nil {
			cancel() // instead of reading all that is left
			_, _ = rows.Close()
			return err
		}
	}
	_, err := rows.Close()
	return err
}

// Fence is a row of the table resource.
type Fence struct {
	Number    int32  `json:"number"`
	Name      string `json:"name"`
	Timeline  int32  `json:"timeline"`
	Epoch     int64  `json:"epoch"`
	Token     int64  `json:"token"`
	PrevToken int64  `json:"prev_token"`
	ClaimSeq  int64  `json:"claim_seq"`
	ClaimedAt Time   `json:"claimed_at"`
	Seq       int64  `json:"seq"`
	Tx        int64  `json:"tx,string"`
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

// Setting has the columns of the table setting that bound claims.
type Setting struct {
	Epoch        int64 `json:"epoch"`
	Token        int64 `json:"token"`
	MaxTokenJump int64 `json:"max_token_jump"`
}

// Columns reads a row column by column, in the order of the query. After an error all values are
// zero.
type Columns struct {
	row [][]byte // as PostgreSQL sends them in binary; nil is null
	err error
}

// Err returns the first error, such as a column whose type was changed.
func (c *Columns) Err() error { return c.err }

// next returns the next column, which has size bytes unless it is null; a size of -1 is any.
func (c *Columns) next(size int) []byte {
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

// Int64 returns 0 for null.
func (c *Columns) Int64() (n int64) {
	if v := c.next(8); v != nil {
		n = int64(binary.BigEndian.Uint64(v))
	}
	return n
}

// Int32 returns 0 for null.
func (c *Columns) Int32() (n int32) {
	if v := c.next(4); v != nil {
		n = int32(binary.BigEndian.Uint32(v))
	}
	return n
}

// Text returns "" for null.
func (c *Columns) Text() string { return string(c.next(-1)) }

// The columns of each table in the order in which they are read, with the alias of the table. What
// is a domain is sent as its base type.
const (
	EntryColumns      = "h.resource, h.kind, h.seq, h.claim, h.tx, h.xid, h.at, h.ops, h.epoch, h.token, h.timeline, h.holder, h.name, h.hash"
	FenceColumns      = "r.id, r.name, r.timeline, r.epoch, r.token, r.prev_token, r.claim_seq, r.claimed_at, r.seq, r.tx, r.hash, r.holder"
	CheckpointColumns = "c.first, c.hash, c.pruned_at"
	HoldColumns       = "o.name, o.reason, o.role, o.at"
	OperationColumns  = "k.resource, k.key, k.request, k.tx, k.at"
	RejectionColumns  = "f.id, f.resource, f.reason, f.stage, f.epoch, f.token, f.holder, f.current_epoch, f.current_token, f.current_holder, f.current_since, f.count, f.first_at, f.last_at"
)

// EntryReader reads entries one after the other into the same place.
type EntryReader struct {
	entry             Entry
	ops, holder, name string
	epoch, token      int64
	timeline          int32
}

// Read reads EntryColumns. The entry is valid until the next call, and its hash as long as c is.
func (r *EntryReader) Read(c *Columns) *Entry {
	r.entry = Entry{Resource: c.Int32(), Kind: c.Kind(), Seq: c.Int64(), Claim: c.Int64(), Tx: c.Int64(), Xid: uint64(c.Int64()), At: c.Time(),
		Ops: into(c, &r.ops, (*Columns).Text), Epoch: into(c, &r.epoch, (*Columns).Int64), Token: into(c, &r.token, (*Columns).Int64),
		Timeline: into(c, &r.timeline, (*Columns).Int32), Holder: into(c, &r.holder, (*Columns).Text), Name: into(c, &r.name, (*Columns).Text), Hash: c.next(-1)}
	return &r.entry
}

func into[T any](c *Columns, place *T, read func(*Columns) T) *T {
	null := len(c.row) > 0 && c.row[0] == nil
	if *place = read(c); null {
		return nil
	}
	return place
}

// Kind returns 0 for null.
func (c *Columns) Kind() Kind {
	if v := c.next(1); v != nil {
		return Kind(v[0])
	}
	return 0
}

// Time returns the zero Time for null.
func (c *Columns) Time() Time { return Time(c.Int64()) }

// Hash returns nil for null.
func (c *Columns) Hash() Hash { return bytes.Clone(c.next(-1)) }

// Fence reads FenceColumns.
func (c *Columns) Fence() *Fence {
	return &Fence{Number: c.Int32(), Name: c.Text(), Timeline: c.Int32(), Epoch: c.Int64(), Token: c.Int64(), PrevToken: c.Int64(),
		ClaimSeq: c.Int64(), ClaimedAt: c.Time(), Seq: c.Int64(), Tx: c.Int64(), Hash: c.Hash(), Holder: c.Text()}
}

// Checkpoint reads CheckpointColumns. It returns nil where a join found none.
func (c *Columns) Checkpoint() *Checkpoint {
	return into(c, new(Checkpoint), func(c *Columns) Checkpoint {
		return Checkpoint{First: c.Int64(), Hash: c.Hash(), PrunedAt: c.Time()}
	})
}

// Hold reads HoldColumns. It returns nil where a join found none.
func (c *Columns) Hold() *Hold {
	return into(c, new(Hold), func(c *Columns) Hold { return Hold{Name: c.Text(), Reason: c.Text(), Role: c.Text(), At: c.Time()} })
}

// Rejection reads RejectionColumns.
func (c *Columns) Rejection() Rejection {
	r := Rejection{ID: c.Int64(), Resource: c.Text(), Reason: c.Text(), Stage: c.Text(), Epoch: c.Int64(), Token: c.Int64(), Holder: c.Text(),
		CurrentEpoch: c.Int64(), CurrentToken: c.Int64(), CurrentHolder: c.Text()}
	r.CurrentSince = into(c, new(Time), (*Columns).Time)
	r.Count, r.FirstAt, r.LastAt = c.Int64(), c.Time(), c.Time()
	return r
}

// Operation reads OperationColumns.
func (c *Columns) Operation() Operation {
	return Operation{Resource: c.Int32(), Key: c.Text(), Request: c.Hash(), Tx: c.Int64(), At: c.Time()}
}

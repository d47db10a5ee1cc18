package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

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

// IsNull reports whether the next column is null.
func (c *Columns) IsNull() bool { return c.err == nil && len(c.row) > 0 && c.row[0] == nil }

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
	e := &r.entry
	*e = Entry{Resource: c.Int32(), Kind: c.Kind(), Seq: c.Int64(), Claim: c.Int64(), Tx: c.Int64(), Xid: uint64(c.Int64()), At: c.Time()}
	e.Ops = c.textInto(&r.ops)
	e.Epoch = c.int64Into(&r.epoch)
	e.Token = c.int64Into(&r.token)
	if !c.IsNull() {
		e.Timeline = &r.timeline
	}
	r.timeline = c.Int32()
	e.Holder = c.textInto(&r.holder)
	e.Name = c.textInto(&r.name)
	e.Hash = c.next(-1)
	return e
}

// Kind returns 0 for null.
func (c *Columns) Kind() Kind {
	if v := c.next(1); v != nil {
		return Kind(v[0])
	}
	return 0
}

// textInto returns p with the text in it, or nil for null.
func (c *Columns) textInto(p *string) *string {
	if c.IsNull() {
		c.next(-1)
		return nil
	}
	*p = c.Text()
	return p
}

func (c *Columns) int64Into(p *int64) *int64 {
	if c.IsNull() {
		c.next(8)
		return nil
	}
	*p = c.Int64()
	return p
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
	if c.IsNull() {
		c.skip(3)
		return nil
	}
	return &Checkpoint{First: c.Int64(), Hash: c.Hash(), PrunedAt: c.Time()}
}

// Hold reads HoldColumns. It returns nil where a join found none.
func (c *Columns) Hold() *Hold {
	if c.IsNull() {
		c.skip(4)
		return nil
	}
	return &Hold{Name: c.Text(), Reason: c.Text(), Role: c.Text(), At: c.Time()}
}

func (c *Columns) skip(n int) {
	for range n {
		c.next(-1)
	}
}

// Rejection reads RejectionColumns.
func (c *Columns) Rejection() Rejection {
	r := Rejection{ID: c.Int64(), Resource: c.Text(), Reason: c.Text(), Stage: c.Text(), Epoch: c.Int64(), Token: c.Int64(), Holder: c.Text(),
		CurrentEpoch: c.Int64(), CurrentToken: c.Int64(), CurrentHolder: c.Text()}
	if since := new(int64); c.int64Into(since) != nil {
		at := Time(*since)
		r.CurrentSince = &at
	}
	r.Count, r.FirstAt, r.LastAt = c.Int64(), c.Time(), c.Time()
	return r
}

// Operation reads OperationColumns.
func (c *Columns) Operation() Operation {
	return Operation{Resource: c.Int32(), Key: c.Text(), Request: c.Hash(), Tx: c.Int64(), At: c.Time()}
}

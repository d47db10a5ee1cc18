package audit

import (
	"bytes"

	"github.com/fencekit/fencekit/internal/record"
)

// The columns of each table in the order in which they are read. What is a domain is sent as its
// base type.
const (
	entryColumns      = "h.resource, h.kind, h.seq, h.claim, h.tx, h.xid, h.at, h.ops, h.epoch, h.token, h.timeline, h.holder, h.name, h.hash"
	fenceColumns      = "r.id, r.name, r.timeline, r.epoch, r.token, r.prev_token, r.claim_seq, r.claimed_at, r.seq, r.tx, r.hash, r.holder"
	checkpointColumns = "c.first, c.hash, c.pruned_at"
	holdColumns       = "o.name, o.reason, o.role, o.at"
	rejectionColumns  = "f.id, f.resource, f.reason, f.stage, f.epoch, f.token, f.holder, f.current_epoch, f.current_token, f.current_holder, f.current_since, f.count, f.first_at, f.last_at"
)

// entryReader reads entries one after the other into the same place.
type entryReader struct {
	entry             record.Entry
	ops, holder, name string
	epoch, token      int64
	timeline          int32
}

func (r *entryReader) read(from row) (*record.Entry, error) {
	c := columns{row: from}
	e := &r.entry
	*e = record.Entry{Resource: c.int32(), Kind: kind(c.next(1)), Seq: c.int64(), Claim: c.int64(), Tx: c.int64(), Xid: uint64(c.int64()), At: record.Time(c.int64())}
	e.Ops = c.textInto(&r.ops)
	e.Epoch = c.int64Into(&r.epoch)
	e.Token = c.int64Into(&r.token)
	if !c.isNull() {
		e.Timeline = &r.timeline
	}
	r.timeline = c.int32()
	e.Holder = c.textInto(&r.holder)
	e.Name = c.textInto(&r.name)
	e.Hash = c.next(-1)
	return e, c.err
}

func kind(column []byte) record.Kind {
	if len(column) == 0 {
		return 0
	}
	return record.Kind(column[0])
}

// textInto returns p with the text in it, or nil for null.
func (c *columns) textInto(p *string) *string {
	if c.isNull() {
		c.next(-1)
		return nil
	}
	*p = c.text()
	return p
}

func (c *columns) int64Into(p *int64) *int64 {
	if c.isNull() {
		c.next(8)
		return nil
	}
	*p = c.int64()
	return p
}

func (c *columns) time() record.Time { return record.Time(c.int64()) }

func (c *columns) hash() record.Hash { return bytes.Clone(c.next(-1)) }

func (c *columns) fence() *record.Fence {
	return &record.Fence{Number: c.int32(), Name: c.text(), Timeline: c.int32(), Epoch: c.int64(), Token: c.int64(), PrevToken: c.int64(),
		ClaimSeq: c.int64(), ClaimedAt: c.time(), Seq: c.int64(), Tx: c.int64(), Hash: c.hash(), Holder: c.text()}
}

// checkpoint returns nil where a join found none.
func (c *columns) checkpoint() *record.Checkpoint {
	if c.isNull() {
		c.skip(3)
		return nil
	}
	return &record.Checkpoint{First: c.int64(), Hash: c.hash(), PrunedAt: c.time()}
}

// hold returns nil where a join found none.
func (c *columns) hold() *record.Hold {
	if c.isNull() {
		c.skip(4)
		return nil
	}
	return &record.Hold{Name: c.text(), Reason: c.text(), Role: c.text(), At: c.time()}
}

func (c *columns) skip(n int) {
	for range n {
		c.next(-1)
	}
}

func (c *columns) rejection() record.Rejection {
	r := record.Rejection{ID: c.int64(), Resource: c.text(), Reason: c.text(), Stage: c.text(), Epoch: c.int64(), Token: c.int64(), Holder: c.text(),
		CurrentEpoch: c.int64(), CurrentToken: c.int64(), CurrentHolder: c.text()}
	if since := new(int64); c.int64Into(since) != nil {
		at := record.Time(*since)
		r.CurrentSince = &at
	}
	r.Count, r.FirstAt, r.LastAt = c.int64(), c.time(), c.time()
	return r
}

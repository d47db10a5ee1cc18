package storage

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// OpRecord is what the history keeps about one operation: the options OpID, Name and Attr
// of its call.
type OpRecord struct {
	ID    string            `json:"id,omitempty"`
	Name  string            `json:"name,omitempty"`
	Attrs map[string]string `json:"attrs,omitempty"`
}

// EntryKind says what moved the fence to a position.
type EntryKind string

// The kinds of entries.
const (
	KindClaim EntryKind = "claim" // a grant raised the fence
	KindWrite EntryKind = "write" // a guarded transaction committed
	KindVoid  EntryKind = "void"  // a COMMIT of unknown outcome was ruled out
)

// Entry is the record of one move of a resource's fence. Positions have no gaps, and tokens
// never decrease from one entry to the next.
type Entry struct {
	Grant fence.Grant // of the transaction that made the entry
	Position
	Kind EntryKind
	Ops  []OpRecord // of a write. If what is stored is none, one with the attribute "malformed", which is its text
	At   time.Time  // the database's clock; positions, not times, are the order
	Hash []byte     // over the entry and the hash of the one before
}

// Rejection is the record of equal rejections, with their count: a stale holder that keeps
// trying makes one record, not thousands.
type Rejection struct {
	Reason  Reason
	Stage   Stage
	Grant   fence.Grant // the grant that was rejected
	Current fence.Grant // the grant that had the fence
	Since   time.Time   // when Current claimed it
	Count   int64
	First   time.Time
	Last    time.Time
}

// History reads what a store keeps about a resource. An unknown resource has an
// empty history.
type History interface {
	// Entries returns up to limit entries after position after, in order.
	Entries(ctx context.Context, resource string, after int64, limit int) ([]Entry, error)
	// Rejections returns up to limit rejections, the latest first.
	Rejections(ctx context.Context, resource string, limit int) ([]Rejection, error)
}

package review

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Reader explains the history in one schema of a database. Its methods may be called
// concurrently.
type Reader struct {
	history *audit.Database
	pool    *pgxpool.Pool
	schema  string // quoted
}

// NewReader returns a Reader of a schema. It fails as audit.Open does.
func NewReader(pool *pgxpool.Pool, schema string) (*Reader, error) {
	history, err := audit.Open(pool, schema)
	if err != nil {
		return nil, err
	}
	return &Reader{history, pool, pgx.Identifier{cmp.Or(schema, postgres.DefaultSchema)}.Sanitize()}, nil
}

// entries returns the entries of a resource at positions from first to last.
func (r *Reader) entries(ctx context.Context, resource string, first, last int64) ([]audit.Entry, error) {
	var found []audit.Entry
	for e, err := range r.history.Entries(ctx, audit.Filter{Resource: resource, After: audit.Cursor{Resource: resource, Seq: max(first, 1) - 1}}) {
		if err != nil {
			return nil, err
		}
		if e.Seq > last {
			break
		}
		found = append(found, e)
	}
	return found, nil
}

// entry returns the entry at a position, nil if there is none.
func (r *Reader) entry(ctx context.Context, resource string, position int64) (*audit.Entry, error) {
	found, err := r.entries(ctx, resource, position, position)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// claimOf returns the claim of a grant, nil if there is none.
func (r *Reader) claimOf(ctx context.Context, g fence.Grant) (*audit.Entry, error) {
	return find(r.history.Entries(ctx, audit.Filter{Resource: g.Resource, Kinds: []storage.EntryKind{storage.KindClaim}, MinToken: g.Token, MaxToken: g.Token}),
		func(e audit.Entry) bool { return e.Grant == g })
}

// claimAfter returns the first claim after a position, nil if there is none.
func (r *Reader) claimAfter(ctx context.Context, resource string, position int64) (*audit.Entry, error) {
	return first(r.history.Entries(ctx, audit.Filter{Resource: resource, Kinds: []storage.EntryKind{storage.KindClaim}, After: audit.Cursor{Resource: resource, Seq: position}}))
}

// lastBefore returns the position of the last entry before a time, 0 if there is none.
func (r *Reader) lastBefore(ctx context.Context, resource string, at time.Time) (int64, error) {
	later, err := first(r.history.Entries(ctx, audit.Filter{Resource: resource, Since: at}))
	if err != nil {
		return 0, err
	}
	if later != nil {
		return later.Seq - 1, nil
	}
	return r.last(ctx, resource)
}

// last returns the position of a fence, 0 if there is none.
func (r *Reader) last(ctx context.Context, resource string) (int64, error) {
	f, err := first(r.history.Fences(ctx, audit.Filter{Resource: resource}))
	if err != nil || f == nil {
		return 0, err
	}
	return f.Seq, nil
}

// first returns the first, nil if there is none.
func first[T any](all iter.Seq2[T, error]) (*T, error) {
	return find(all, func(T) bool { return true })
}

// find returns the first that is wanted, nil if there is none.
func find[T any](all iter.Seq2[T, error], wanted func(T) bool) (*T, error) {
	for one, err := range all {
		if err != nil {
			return nil, err
		}
		if wanted(one) {
			return &one, nil
		}
	}
	return nil, nil
}

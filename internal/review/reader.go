package review

import (
	"cmp"
	"context"
	"fmt"
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

// Pruned says where the history of a resource begins, if entries before that were pruned.
type Pruned struct {
	First int64     `json:"first_position"`
	At    time.Time `json:"first_at"` // of the entry there
}

// pruned returns nil if nothing was pruned.
func (r *Reader) pruned(ctx context.Context, resource string) (*Pruned, error) {
	rows, err := r.pool.Query(ctx, "select c.first, e.at from "+r.schema+".checkpoint c join "+r.schema+".resource f on f.id = c.resource"+
		" join "+r.schema+".history e on e.resource = c.resource and e.seq = c.first where f.name = $1", pgx.QueryExecModeExec, resource)
	if err != nil {
		return nil, fmt.Errorf("review: reading the checkpoint: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Pruned])
	if err != nil || len(found) == 0 {
		return nil, err
	}
	found[0].At = found[0].At.UTC()
	return &found[0], nil
}

// entries returns the entries of a resource at positions from first to last.
func (r *Reader) entries(ctx context.Context, resource string, first, last int64) ([]audit.Entry, error) {
	var found []audit.Entry
	for e, err := range ofOne(resource, r.history.Entries(ctx, audit.Filter{Resources: resource, After: audit.Cursor{Resource: resource, Seq: max(first, 1) - 1}})) {
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
	return first(r.history.Entries(ctx, audit.Filter{Resources: g.Resource, Kinds: []storage.EntryKind{storage.KindClaim}, MinToken: g.Token, MaxToken: g.Token}),
		func(e audit.Entry) bool { return e.Grant == g })
}

// claimAfter returns the first claim behind a position, nil if there is none.
func (r *Reader) claimAfter(ctx context.Context, resource string, position int64) (*audit.Entry, error) {
	return first(ofOne(resource, r.history.Entries(ctx, audit.Filter{Resources: resource, Kinds: []storage.EntryKind{storage.KindClaim}, After: audit.Cursor{Resource: resource, Seq: position}})),
		func(audit.Entry) bool { return true })
}

// lastBefore returns the position of the last entry before a time, 0 if there is none.
func (r *Reader) lastBefore(ctx context.Context, resource string, at time.Time) (int64, error) {
	later, err := first(ofOne(resource, r.history.Entries(ctx, audit.Filter{Resources: resource, Since: at})), func(audit.Entry) bool { return true })
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
	f, err := first(r.history.Fences(ctx, audit.Filter{Resources: resource}), func(f audit.Fence) bool { return f.Grant.Resource == resource })
	if err != nil || f == nil {
		return 0, err
	}
	return f.Seq, nil
}

// ofOne ends entries behind those of a resource, since its name may be a pattern of others too.
func ofOne(resource string, entries iter.Seq2[audit.Entry, error]) iter.Seq2[audit.Entry, error] {
	return func(yield func(audit.Entry, error) bool) {
		for e, err := range entries {
			if err == nil && e.Grant.Resource != resource {
				if e.Grant.Resource > resource {
					return
				}
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// first returns the first that is wanted, nil if there is none.
func first[T any](all iter.Seq2[T, error], wanted func(T) bool) (*T, error) {
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

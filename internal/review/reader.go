// Package review answers auditors' questions from the history, in plain words: why a grant was
// rejected, whether an operation took effect, and what happened in a period. It writes for readers
// who don't program. The Go code finds the facts; the sentences are in the templates.
//
// [Reader.Report] verifies the history with audit.Database.Verify; after a single finding the answer
// is that the record can't be relied on. [Reader.Why] reports what the tables say, without verifying
// them. If the answer may have been pruned, they say so instead of concluding that it never existed.
package review

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
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

func claims(resource string, token fence.Token) audit.Filter {
	return audit.Filter{Resource: resource, Kinds: []storage.EntryKind{storage.KindClaim}, MinToken: token, MaxToken: token}
}

func (r *Reader) entries(ctx context.Context, resource string, first, last int64) ([]Event, error) {
	var found []Event
	for e, err := range r.history.Entries(ctx, audit.Filter{Resource: resource, After: audit.Cursor{Resource: resource, Seq: max(first, 1) - 1}}) {
		if err != nil {
			return nil, err
		}
		if e.Seq > last {
			break
		}
		found = append(found, eventOf(e))
	}
	return found, nil
}

func (r *Reader) entry(ctx context.Context, resource string, position int64) (*Event, error) {
	found, err := r.entries(ctx, resource, position, position)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
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

func first[T any](all iter.Seq2[T, error]) (*T, error) {
	for one, err := range all {
		if err != nil {
			return nil, err
		}
		return &one, nil
	}
	return nil, nil
}

// Pruned says where the history of a resource begins, if entries before that were pruned.
type Pruned struct {
	First int64     `json:"first_position"`
	At    time.Time `json:"first_at"` // of the entry there
	// Claim is the position of an earlier claim that the prune kept, since First is of its grant.
	Claim int64 `json:"claim_position,omitempty"`
}

// pruned calls each with the resources of which entries were pruned.
func (r *Reader) pruned(ctx context.Context, where string, args []any, each func(PrunedResource)) error {
	var p PrunedResource
	return r.query(ctx, record.ReadTx, `select f.name, c.first, e.at, case when e.claim < c.first then e.claim else 0 end
		from @checkpoint c join @resource f on f.id = c.resource join @history e on e.resource = c.resource and e.seq = c.first where `+where+" order by f.name",
		args, []any{&p.Resource, &p.First, &p.At, &p.Claim}, func() {
			p.At = p.At.UTC()
			each(p)
		})
}

// query scans the rows of a query, in which @table stands for a table or function of the schema, into the same
// places, and calls each for every row.
func (r *Reader) query(ctx context.Context, in func(context.Context, record.Beginner, string, func(pgx.Tx) error) error, sql string, args, places []any, each func()) error {
	err := in(ctx, r.pool, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, strings.ReplaceAll(sql, "@", r.schema+"."), append([]any{pgx.QueryExecModeExec}, args...)...)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, places, func() error {
			each()
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("review: %w", err)
	}
	return nil
}

package audit

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

type table[T any] struct {
	name    string // in errors
	allowed fields
	columns string
	from    string
	order   string // the columns that a Cursor has
	where   func(*conditions, *Filter)
	places  func(*T) []any // of the columns
	cursor  func(T) Cursor
}

func (t *table[T]) read(ctx context.Context, d *Database, f Filter) iter.Seq2[T, error] {
	return paged(func() (func() ([]T, error), error) {
		if err := f.validate(t.name, t.allowed|takesAfter); err != nil {
			return nil, err
		}
		condition, cursors := fmt.Sprintf("(%s) > ($1, $2)", t.order), 2
		if !strings.Contains(t.order, ",") {
			condition, cursors = t.order+" > $1", 1
		}
		if cursors == 1 && f.After.Seq != 0 {
			return nil, fmt.Errorf("%w: audit.Filter has the cursor %+v, which is of none of the %s", fence.ErrInvalid, f.After, t.name)
		}
		after := f.After
		return func() ([]T, error) {
			where := conditions{args: []any{after.Resource, after.Seq}[:cursors]}
			t.where(&where, &f)
			sql := fmt.Sprintf("select %s from @%s t where %s and %s order by %s limit %d", t.columns, t.from, condition, where.where(), t.order, d.limits.rows)
			page, err := collect(ctx, d, sql, where.args, func(row pgx.CollectableRow) (one T, err error) {
				err = row.Scan(t.places(&one)...)
				return one, err
			})
			if len(page) > 0 {
				after = t.cursor(page[len(page)-1])
			}
			return page, err
		}, nil
	})
}

// Fence is the current state of a fence.
type Fence struct {
	Grant fence.Grant // the grant that claimed the resource last
	storage.Position
	Claim     int64 // the position at which Grant claimed the resource
	ClaimedAt time.Time
	Hash      []byte // of the last entry
}

// Cursor returns the fence's cursor, for Filter.After.
func (f Fence) Cursor() Cursor { return Cursor{Resource: f.Grant.Resource} }

// Fences returns the fences that match f, in the order of resource. It accepts the filters by
// name, Since and Until (compared with the time of the claim), Holder, the tokens and After,
// whose Seq has to be 0. If reading fails, the last pair has the error.
func (d *Database) Fences(ctx context.Context, f Filter) iter.Seq2[Fence, error] {
	return fences.read(ctx, d, f)
}

var fences = table[Fence]{
	name: "fences", allowed: takesTimes | takesGrants, from: "current_fence", order: "resource", cursor: Fence.Cursor,
	columns: "resource, epoch, token, holder, position, tx, claim_position, claimed_at, decode(hash, 'hex')",
	where: func(c *conditions, f *Filter) {
		c.addResource(f, "resource")
		c.addTimes(f, "claimed_at", "claimed_at")
		c.addGrant(f)
	},
	places: func(f *Fence) []any {
		return []any{&f.Grant.Resource, &f.Grant.Epoch, &f.Grant.Token, &f.Grant.Holder, &f.Seq, &f.Tx, &f.Claim, &f.ClaimedAt, &f.Hash}
	},
}

// Hold keeps the history of a resource from being pruned (postgres.HoldHistory).
type Hold struct {
	Resource string
	Reason   string
	Role     string    // the login role that gave Reason
	At       time.Time // when it was placed; a new reason does not change it
}

// Cursor returns the hold's cursor, for Filter.After.
func (h Hold) Cursor() Cursor { return Cursor{Resource: h.Resource} }

// Holds returns the holds that match f, in the order of resource. It accepts the filters by name,
// and After, whose Seq has to be 0. If reading fails, the last pair has the error.
func (d *Database) Holds(ctx context.Context, f Filter) iter.Seq2[Hold, error] {
	return holds.read(ctx, d, f)
}

var holds = table[Hold]{
	name: "holds", columns: "name, reason, role, at", from: "hold", order: "name", cursor: Hold.Cursor,
	where:  func(c *conditions, f *Filter) { c.addResource(f, "name") },
	places: func(h *Hold) []any { return []any{&h.Resource, &h.Reason, &h.Role, &h.At} },
}

// Rejection is the record of one or more equal rejections.
type Rejection struct {
	storage.Rejection
	// ID numbers the records, roughly in the order of their first rejections.
	ID int64
}

// Cursor returns the rejection's cursor, for Filter.After.
func (r Rejection) Cursor() Cursor { return Cursor{r.Grant.Resource, r.ID} }

// Rejections returns the rejections that match f, in the order of resource and ID. It accepts the
// filters by name, Since and Until (a record matches if the time from its first to its last
// rejection overlaps them), Holder and the tokens (of the rejected grant), and After. If reading
// fails, the last pair has the error.
func (d *Database) Rejections(ctx context.Context, f Filter) iter.Seq2[Rejection, error] {
	return rejections.read(ctx, d, f)
}

var rejections = table[Rejection]{
	name: "rejections", allowed: takesTimes | takesGrants, from: "rejection", order: "resource, id", cursor: Rejection.Cursor,
	columns: "id, resource, reason, stage, epoch, token, holder, resource, current_epoch, current_token, current_holder, coalesce(current_since, '0001-01-01 00:00:00Z'), count, first_at, last_at",
	where: func(c *conditions, f *Filter) {
		c.addResource(f, "resource")
		c.addTimes(f, "last_at", "first_at")
		c.addGrant(f)
	},
	places: func(r *Rejection) []any {
		return []any{&r.ID, &r.Grant.Resource, &r.Reason, &r.Stage, &r.Grant.Epoch, &r.Grant.Token, &r.Grant.Holder,
			&r.Current.Resource, &r.Current.Epoch, &r.Current.Token, &r.Current.Holder, &r.Since, &r.Count, &r.First, &r.Last}
	},
}

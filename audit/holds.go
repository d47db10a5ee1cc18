package audit

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
)

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
// and After, whose Seq has to be 0. It reads page by page, as Entries does.
func (d *Database) Holds(ctx context.Context, f Filter) iter.Seq2[Hold, error] {
	return paged(func() (func() ([]Hold, error), error) {
		if err := f.validate("holds", takesAfter); err != nil {
			return nil, err
		}
		if f.After.Seq != 0 {
			return nil, fmt.Errorf("%w: audit.Filter has the cursor %+v, which is of no hold", fence.ErrInvalid, f.After)
		}
		after := f.After.Resource
		return func() ([]Hold, error) {
			page, err := d.holds(ctx, &f, after)
			if len(page) > 0 {
				after = page[len(page)-1].Resource
			}
			return page, err
		}, nil
	})
}

func (d *Database) holds(ctx context.Context, f *Filter, after string) ([]Hold, error) {
	where := conditions{args: []any{after}}
	where.addResource(f, "name")
	sql := "select name, reason, role, at from " + d.schema + ".hold where name > $1 and " + where.where() + fmt.Sprintf(" order by name limit %d", d.limits.rows)
	return collect(ctx, d, sql, where.args, pgx.RowToStructByPos[Hold])
}

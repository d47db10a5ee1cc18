package audit

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/storage"
)

// Hold keeps the history of a resource from being pruned (postgres.HoldHistory).
type Hold struct {
	Resource string
	Reason   string
	Role     string    // the login role that gave Reason
	At       time.Time // when it was placed; a new reason does not change it
}

// Holds returns all holds, in the order of resource.
func (d *Database) Holds(ctx context.Context) ([]Hold, error) {
	return collect(ctx, d, "select name, reason, role, at from @hold t order by name", nil, pgx.RowToStructByPos[Hold])
}

// Rejection is the record of one or more equal rejections.
type Rejection struct {
	storage.Rejection
	// ID numbers the records, roughly in the order of their first rejections.
	ID int64
}

// Cursor returns the rejection's cursor, for Filter.After.
func (r Rejection) Cursor() Cursor { return Cursor{r.Grant.Resource, r.ID} }

const rejectionColumns = "id, resource, reason, stage, epoch, token, holder, resource, current_epoch, current_token, current_holder, coalesce(current_since, '0001-01-01 00:00:00Z'), count, first_at, last_at"

// Rejections returns the rejections that match f, in the order of resource and ID. It accepts the
// filters by name, Since and Until (a record matches if the time from its first to its last
// rejection overlaps them), Holder (of the rejected grant), and After. If reading fails, the last pair has
// the error.
func (d *Database) Rejections(ctx context.Context, f Filter) iter.Seq2[Rejection, error] {
	return paged(func() (func() ([]Rejection, error), error) {
		switch {
		case len(f.Kinds) > 0:
			return nil, notFiltered("rejections", "Kinds")
		case f.byOp():
			return nil, notFiltered("rejections", "Op")
		}
		if err := f.validate(); err != nil {
			return nil, err
		}
		after := f.After
		return func() ([]Rejection, error) {
			where := conditions{args: []any{after.Resource, after.Seq}}
			where.addResource(&f, "resource")
			where.addTimes(&f, "last_at", "first_at")
			where.addGrant(&f)
			sql := fmt.Sprintf("select %s from @rejection t where (resource, id) > ($1, $2) and %s order by resource, id limit %d", rejectionColumns, where.where(), d.limits.rows)
			page, err := collect(ctx, d, sql, where.args, func(row pgx.CollectableRow) (r Rejection, err error) {
				err = row.Scan(&r.ID, &r.Grant.Resource, &r.Reason, &r.Stage, &r.Grant.Epoch, &r.Grant.Token, &r.Grant.Holder,
					&r.Current.Resource, &r.Current.Epoch, &r.Current.Token, &r.Current.Holder, &r.Since, &r.Count, &r.First, &r.Last)
				return r, err
			})
			if len(page) > 0 {
				after = page[len(page)-1].Cursor()
			}
			return page, err
		}, nil
	})
}

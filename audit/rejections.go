package audit

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/storage"
)

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
// rejection overlaps them), Holder and the tokens (of the rejected grant), and After. It reads
// page by page, as Entries does.
func (d *Database) Rejections(ctx context.Context, f Filter) iter.Seq2[Rejection, error] {
	return paged(func() (func() ([]Rejection, error), error) {
		if err := f.validate("rejections", takesTimes|takesGrants|takesAfter); err != nil {
			return nil, err
		}
		after := f.After
		return func() ([]Rejection, error) {
			page, err := d.rejections(ctx, &f, after)
			if len(page) > 0 {
				after = page[len(page)-1].Cursor()
			}
			return page, err
		}, nil
	})
}

func (d *Database) rejections(ctx context.Context, f *Filter, after Cursor) ([]Rejection, error) {
	where := conditions{args: []any{after.Resource, after.Seq}}
	where.addRejections(f)
	sql := "select id, resource, reason, stage, epoch, token, holder, current_epoch, current_token, current_holder, current_since, count, first_at, last_at from " +
		d.schema + ".rejection where (resource, id) > ($1, $2) and " + where.where() + fmt.Sprintf(" order by resource, id limit %d", d.limits.rows)
	return collect(ctx, d, sql, where.args, func(row pgx.CollectableRow) (r Rejection, err error) {
		var since *time.Time // null if no claim was known
		err = row.Scan(&r.ID, &r.Grant.Resource, &r.Reason, &r.Stage, &r.Grant.Epoch, &r.Grant.Token, &r.Grant.Holder,
			&r.Current.Epoch, &r.Current.Token, &r.Current.Holder, &since, &r.Count, &r.First, &r.Last)
		r.Current.Resource = r.Grant.Resource
		if since != nil {
			r.Since = *since
		}
		return r, err
	})
}

// addRejections requires what f says of a rejection.
func (c *conditions) addRejections(f *Filter) {
	c.addResource(f, "resource")
	if !f.Since.IsZero() {
		c.add("last_at >= $%d", f.Since)
	}
	if !f.Until.IsZero() {
		c.add("first_at < $%d", f.Until)
	}
	c.addGrant(f)
}

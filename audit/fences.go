package audit

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

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
// whose Seq has to be 0. It reads page by page, as Entries does.
func (d *Database) Fences(ctx context.Context, f Filter) iter.Seq2[Fence, error] {
	return paged(func() (func() ([]Fence, error), error) {
		if err := f.validate("fences", takesTimes|takesGrants|takesAfter); err != nil {
			return nil, err
		}
		if f.After.Seq != 0 {
			return nil, fmt.Errorf("%w: audit.Filter has the cursor %+v, which is of no fence", fence.ErrInvalid, f.After)
		}
		after := f.After.Resource
		return func() ([]Fence, error) {
			page, err := d.fences(ctx, &f, after)
			if len(page) > 0 {
				after = page[len(page)-1].Grant.Resource
			}
			return page, err
		}, nil
	})
}

func (d *Database) fences(ctx context.Context, f *Filter, after string) ([]Fence, error) {
	where := conditions{args: []any{after}}
	where.addResource(f, "resource")
	if !f.Since.IsZero() {
		where.add("claimed_at >= $%d", f.Since)
	}
	if !f.Until.IsZero() {
		where.add("claimed_at < $%d", f.Until)
	}
	where.addGrant(f)
	sql := "select resource, epoch, token, holder, position, tx, claim_position, claimed_at, hash from " + d.schema + ".current_fence where resource > $1 and " +
		where.where() + fmt.Sprintf(" order by resource limit %d", d.limits.rows)
	return collect(ctx, d, sql, where.args, func(row pgx.CollectableRow) (c Fence, err error) {
		var hash string
		if err := row.Scan(&c.Grant.Resource, &c.Grant.Epoch, &c.Grant.Token, &c.Grant.Holder, &c.Seq, &c.Tx, &c.Claim, &c.ClaimedAt, &hash); err != nil {
			return c, err
		}
		c.Hash, err = hex.DecodeString(hash)
		return c, err
	})
}

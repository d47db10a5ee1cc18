package fault

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Tamper changes an entry of the history, as the owner of its table: of the writes, the one with
// number Index, from 0, counted from the latest on.
type Tamper struct{ Index int }

func (f Tamper) String() string { return fmt.Sprintf("tamper %d", f.Index) }

// Inject implements Fault. It waits until there are so many writes.
func (f Tamper) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	for {
		var changed int64
		err := pgx.BeginFunc(ctx, site.Database(), func(tx pgx.Tx) (err error) {
			changed, err = f.tamper(ctx, tx)
			return err
		})
		if err != nil {
			return nil, missed(fmt.Errorf("tampering with the history: %w", err))
		}
		if changed > 0 {
			return nil, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond): // leave the database to those who use it
		}
	}
}

// tamper changes the time of the entry, while the trigger that forbids it is off.
func (f Tamper) tamper(ctx context.Context, tx pgx.Tx) (changed int64, err error) {
	if _, err := tx.Exec(ctx, "alter table fence.history disable trigger protect_history"); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, `update fence.history set at = at - interval '1 day'
		where (resource, seq) = (select resource, seq from fence.history where kind = 'w' order by at desc offset $1 limit 1)`, f.Index)
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, "alter table fence.history enable always trigger protect_history")
	return tag.RowsAffected(), err
}

package fault

import (
	"context"
	"fmt"
)

// Terminate ends the backend of a worker that is in the midst of a transaction, as
// an operator might.
type Terminate struct{ Worker int }

func (f Terminate) String() string { return fmt.Sprintf("terminate w%d", f.Worker) }

// Strike implements Fault. It waits until there is such a transaction.
func (f Terminate) Strike(ctx context.Context, site Site) (func(context.Context) error, error) {
	name := site.Worker(f.Worker).Name()
	for {
		var hit int
		err := site.Database().QueryRow(ctx, `
			select count(*) filter (where pg_terminate_backend(pid)) from (
				select pid from pg_stat_activity
				where datname = current_database() and application_name = $1 and xact_start is not null
				order by xact_start limit 1) as victim`, name).Scan(&hit)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %s began no transaction", ErrMissed, name)
		case err != nil:
			return nil, fmt.Errorf("%w: another fault has struck the database: %w", ErrMissed, err)
		case hit > 0:
			return nil, nil
		}
	}
}

package fault

import (
	"context"
	"fmt"
	"time"
)

// terminateSQL terminates the backend of a worker's oldest transaction, and waits for its
// end.
const terminateSQL = `
select count(*) filter (where pg_terminate_backend(pid, 5000)) > 0
  from (select pid from pg_stat_activity
         where datname = current_database() and application_name = $1 and xact_start is not null
         order by xact_start limit 1) as victim`

// Terminate terminates a worker's backend in mid-transaction, as an operator might.
type Terminate struct{ Worker int }

func (f Terminate) String() string { return fmt.Sprintf("terminate w%d", f.Worker) }

// Inject implements Fault. It waits until there is such a transaction.
func (f Terminate) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	name := site.Worker(f.Worker).Name()
	for {
		var hit bool
		err := site.Database().QueryRow(ctx, terminateSQL, name).Scan(&hit)
		if err != nil {
			return nil, missed(fmt.Errorf("looking for a transaction of %s: %w", name, err))
		}
		if hit {
			return nil, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond): // leave the database to those who use it
		}
	}
}

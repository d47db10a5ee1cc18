package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// mayKeepFences says of a lock l of a relation c of the schema that its transaction may keep a fence
// locked. One that writes to a protected table is noted in two other tables; one that vacuums locks
// no rows.
const mayKeepFences = `c.relkind = 'r' and c.relname not in ('pending_write', 'unguarded_write')
			   and l.mode not in ('AccessShareLock', 'ShareUpdateExclusiveLock', 'SIReadLock')`

// checkOpenTransactions looks for old transactions with locks for writing on the schema's tables.
func checkOpenTransactions(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select distinct a.pid, coalesce(a.usename, ''), coalesce(a.state, ''), extract(epoch from now() - a.xact_start)::float8
			  from pg_catalog.pg_locks l
			  join pg_catalog.pg_class c on c.oid = l.relation
			  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
			  join pg_catalog.pg_stat_activity a on a.pid = l.pid
			 where l.database = (select oid from pg_catalog.pg_database where datname = current_database())
			   and n.nspname = $1 and l.granted and `+mayKeepFences+`
			   and a.backend_type = 'client backend' and a.xact_start < now() - make_interval(secs => $2)
			 order by 1`, d.Schema, d.limits.Open.Seconds())
		if err != nil {
			return err
		}
		var pid int64
		var user, state string
		var age float64
		_, err = pgx.ForEachRow(rows, []any{&pid, &user, &state, &age}, func() error {
			since := time.Duration(age * float64(time.Second)).Round(time.Second)
			found = append(found, d.found(transactionOpen, fmt.Sprintf("process %d of role %s, %s, in a transaction for %v", pid, user, state, since), "pid", fmt.Sprint(pid)))
			return nil
		})
		return err
	})
	return found, err
}

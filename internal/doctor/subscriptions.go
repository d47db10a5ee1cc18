package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// checkSubscriptions looks for logical replication into the database.
func checkSubscriptions(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select s.subname::text, n.nspname = $1 as own, count(*), (array_agg(format('%I.%I', n.nspname, c.relname) order by n.nspname, c.relname))[1:3]
			  from pg_catalog.pg_subscription_rel r
			  join pg_catalog.pg_subscription s on s.oid = r.srsubid
			  join pg_catalog.pg_class c on c.oid = r.srrelid
			  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
			 where s.subenabled and s.subdbid = (select oid from pg_catalog.pg_database where datname = current_database())
			 group by 1, 2 order by 1, 2`, d.Schema)
		if err != nil {
			return err
		}
		var name string
		var own bool
		var n int64
		var tables []string
		_, err = pgx.ForEachRow(rows, []any{&name, &own, &n, &tables}, func() error {
			k := subscriptionInDatabase
			if own {
				k = subscriptionOnFences
			}
			found = append(found, d.found(k, fmt.Sprintf("subscription %s writes to %s", name, firstOf(n, "table", tables)), "subscription", pgx.Identifier{name}.Sanitize()))
			return nil
		})
		return err
	})
	return found, err
}

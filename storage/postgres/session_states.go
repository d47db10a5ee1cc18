package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// sessionState is what a transaction may leave behind in its session.
const sessionState = `
	select 'the setting ' || name || ' = ' || setting from pg_catalog.pg_settings where source = 'session' and name !~ '^transaction_'
	union all select 'the role ' || pg_catalog.current_setting('role')
	union all select 'the session user ' || session_user
	union all select 'the temporary ' || case relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end || ' ' || relname
	  from pg_catalog.pg_class where relnamespace = pg_catalog.pg_my_temp_schema() and relkind in ('r', 'p', 'v', 'S')
	union all select 'the temporary function ' || proname from pg_catalog.pg_proc where pronamespace = pg_catalog.pg_my_temp_schema()
	union all select 'the temporary type ' || typname from pg_catalog.pg_type where typnamespace = pg_catalog.pg_my_temp_schema() and typtype in ('d', 'e', 'r')
	union all select 'LISTEN ' || channel from pg_catalog.pg_listening_channels() channel
	union all select 'the cursor ' || name || ' WITH HOLD' from pg_catalog.pg_cursors where is_holdable
	union all select 'the advisory lock ' || case objsubid when 1 then (classid::bigint << 32 | objid::bigint)::text else '(' || classid || ', ' || objid || ')' end
	  from pg_catalog.pg_locks where locktype = 'advisory' and pid = pg_catalog.pg_backend_pid()
	union all select 'the prepared statement ' || name || ' of ' || statement from pg_catalog.pg_prepared_statements where from_sql`

// SessionStates returns, for each idle connection of the pool, what its session has that a transaction may
// have left behind: settings, the role, temporary objects, channels that it listens on, cursors WITH HOLD, advisory locks, and statements
// that were prepared by SQL. PostgreSQL doesn't list settings with a dot in their names. guardtest.RequireFenced compares what there is before a function runs and after it.
func (s *Store) SessionStates(ctx context.Context) (map[int64][]string, error) {
	states := map[int64][]string{}
	for _, conn := range s.pool.AcquireAllIdle(ctx) {
		defer conn.Release()
		rows, err := conn.Query(ctx, "select pg_catalog.pg_backend_pid(), array("+sessionState+")")
		if err != nil {
			return nil, err
		}
		var session int64
		var state []string
		if _, err := pgx.ForEachRow(rows, []any{&session, &state}, func() error {
			states[session] = slices.Clone(state)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return states, nil
}

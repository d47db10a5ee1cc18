package chaos

import (
	"context"

	"github.com/fencekit/fencekit/storage/postgres"
)

// unhindered stalls a worker once at each point of its transaction. Elsewhere a stalled
// one has been ended when its worker goes on, by its own bounds or by whoever has the
// lock then, or its context has: nothing is left for the seal to refuse.
func (s *Stage) unhindered(ctx context.Context) error {
	for _, point := range []string{PointBegun, PointRead, PointWritten} {
		if err := s.stall(ctx, actionHeedless, point, expiry); err != nil {
			return err
		}
	}
	s.healed()
	return s.sellOut(ctx)
}

// appRole is what workers are where none may end another's backends, which are those
// of the role that they have logged in as.
const appRole = "chaos_app"

// enrol makes that role, with all rights to the workload's own data.
func (s *Stage) enrol(ctx context.Context) error {
	if err := postgres.GrantRoles(ctx, s.pool, "", postgres.Roles{App: appRole}); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, `
do $$
declare
    v_schema text;
begin
    for v_schema in select nspname from pg_namespace where nspname !~ '^pg_' and nspname not in ('information_schema', 'fence') loop
        execute format('grant all on schema %1$I to `+appRole+`; grant all on all tables in schema %1$I to `+appRole+`;
            grant all on all sequences in schema %1$I to `+appRole+`; grant execute on all routines in schema %1$I to `+appRole+`', v_schema);
    end loop;
end $$`)
	return err
}

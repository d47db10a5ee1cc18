package environment

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/storage/postgres"
)

// createAppRole creates worker.AppRole, with all rights on the workload's own data.
func (s *Environment) createAppRole(ctx context.Context) error {
	if err := postgres.GrantRoles(ctx, s.pool, "", postgres.Roles{App: worker.AppRole}); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, `
do $$
declare
    v_schema text;
begin
    for v_schema in select nspname from pg_namespace where nspname !~ '^pg_' and nspname not in ('information_schema', 'fence') loop
        execute format('grant all on schema %1$I to `+worker.AppRole+`; grant all on all tables in schema %1$I to `+worker.AppRole+`;
            grant all on all sequences in schema %1$I to `+worker.AppRole+`; grant execute on all routines in schema %1$I to `+worker.AppRole+`', v_schema);
    end loop;
end $$`)
	return err
}

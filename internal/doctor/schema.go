package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/storage/postgres"
)

// checkMigrations finds out whether the schema is the one that this package knows.
func checkMigrations(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	known, err := postgres.Migrations(d.Schema)
	if err != nil {
		return nil, err
	}
	var was, is string
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		was, is, err = postgres.RenamedSchema(ctx, tx, d.Schema)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case was != "":
		return []Finding{d.found(schemaRenamed, fmt.Sprintf("schema %s is now called %s", was, is), "was", pgx.Identifier{was}.Sanitize(), "is", pgx.Identifier{is}.Sanitize())}, nil
	}
	var exists bool
	if err := d.row(ctx, `select exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relname = 'migration')`, []any{d.Schema}, &exists); err != nil {
		return nil, err
	}
	if !exists {
		return []Finding{d.found(notMigrated, "schema "+d.Schema+" is missing, or has no table \"migration\"")}, nil
	}
	d.migrated = true // unless it turns out otherwise; the reader role doesn't see the version
	var version, latest = 0, known[len(known)-1].Version
	if err := d.row(ctx, "select coalesce(max(version), 0) from {schema}.migration", nil, &version); err != nil {
		return nil, err
	}
	switch {
	case version < latest:
		d.migrated = false
		return []Finding{d.found(notMigrated, fmt.Sprintf("schema %s is at version %d, %d is needed", d.Schema, version, latest))}, nil
	case version > latest:
		d.newer = true
		return []Finding{d.found(schemaNewer, fmt.Sprintf("schema %s is at version %d, this fencectl knows %d", d.Schema, version, latest))}, nil
	}
	return nil, nil
}

// checkOtherSchemas looks for resources that have a fence in another schema of the database too.
func checkOtherSchemas(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	others, err := d.names(ctx, `
		select n.nspname::text from pg_catalog.pg_namespace n
		 where n.nspname <> $1
		   and exists (select from pg_catalog.pg_proc p where p.pronamespace = n.oid and p.proname = 'record_rejection')
		   and exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname = 'resource' and c.relkind = 'r')
		 order by 1`, d.Schema)
	for _, other := range others {
		shared, failed := d.names(ctx, fmt.Sprintf("select name::text from {schema}.resource r where exists (select from %s.resource o where o.name = r.name) limit 3",
			pgx.Identifier{other}.Sanitize()))
		if failed != nil {
			return found, failed
		}
		if len(shared) > 0 {
			found = append(found, d.found(schemasShareNames, fmt.Sprintf("schemas %s and %s have fences for %s", d.Schema, other, joined(shared))))
		}
	}
	return found, err
}

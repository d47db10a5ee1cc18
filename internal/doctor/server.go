package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/oneline"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage/postgres"
)

func checkServer(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	if d.Pool == nil {
		return []Finding{d.found("postgres-unreachable", facts{"cause": d.Err})}, nil
	}
	if ctx.Err() != nil { // it was not asked
		return nil, ctx.Err()
	}
	var number int
	var version string
	var standby bool
	err := d.row(ctx, "select current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()", nil, &number, &version, &standby)
	if err != nil {
		return []Finding{d.refusal(err)}, nil
	}
	if number < postgres.MinVersion*10000 {
		return []Finding{d.found("postgres-version", facts{"version": version})}, nil
	}
	d.answers = true
	if standby {
		return []Finding{d.found("postgres-standby", facts{})}, nil
	}
	return nil, nil
}

// refusals are a server's, or a pooler's, that have findings of their own, with the statement that ends them.
var refusals = []struct{ code, says, id, run string }{
	{"", "statement pooling", "pooler-statement-mode", ""},
	{"3D000", "", "database-missing", ""},
	{"55000", "", "database-closed", "alter database {database|ident} allow_connections true;"},
	{"42501", "", "database-closed", "grant connect on database {database|ident} to {user|ident};"},
	{"53300", "for database", "database-closed", "alter database {database|ident} connection limit -1;"},
	{"53300", "for role", "database-closed", "alter role {user|ident} connection limit -1;"},
	{"28000", "is not permitted to log in", "database-closed", "alter role {user|ident} login;"},
}

func (d *database) refusal(err error) Finding {
	config := d.Pool.Config().ConnConfig
	seen := facts{"database": config.Database, "user": config.User}
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		for _, r := range refusals {
			if (r.code == "" || r.code == answer.Code) && strings.Contains(answer.Message, r.says) {
				if seen["cause"] = answer.Message; r.run != "" {
					seen["run"] = []string{seen.fill(r.run)}
				}
				return d.found(r.id, seen)
			}
		}
	}
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) {
		err = refused.Unwrap() // without the name of the database: others of the server say the same
	}
	seen["cause"] = oneline.Error(err)
	return d.found("postgres-unreachable", seen)
}

func checkMigrations(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	known, err := postgres.Migrations(d.Schema)
	if err != nil {
		return nil, err
	}
	var was, is string
	err = d.read(ctx, func(tx pgx.Tx) (err error) {
		was, is, err = record.RenamedSchema(ctx, tx, d.Schema)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case was != "":
		return []Finding{d.found("schema-renamed", facts{"was": was, "is": is})}, nil
	}
	var exists bool
	if err := d.row(ctx, `select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relname = 'migration')`, []any{d.Schema}, &exists); err != nil {
		return nil, err
	}
	if !exists {
		return []Finding{d.found("not-migrated", facts{"problem": `is missing, or has no table "migration"`})}, nil
	}
	d.migrated = true // unless it turns out otherwise; the reader role doesn't see the version
	var version, latest = 0, known[len(known)-1].Version
	if err := d.row(ctx, "select coalesce(max(version), 0) from {schema}.migration", nil, &version); err != nil {
		return nil, err
	}
	d.migrated, d.newer = version >= latest, version > latest
	switch {
	case !d.migrated:
		return []Finding{d.found("not-migrated", facts{"problem": fmt.Sprintf("is at version %d, %d is needed", version, latest)})}, nil
	case d.newer:
		return []Finding{d.found("schema-newer", facts{"version": version, "latest": latest})}, nil
	}
	return nil, nil
}

// checkSetting also learns which shard the database is.
func checkSetting(ctx context.Context, s *target) ([]Finding, error) {
	shards, err := rows(ctx, s.db, pgx.RowTo[string], "select coalesce(shard, '') from {schema}.setting")
	if err != nil {
		return nil, err
	}
	if len(shards) != 1 {
		return []Finding{s.db.found(settingMissing, facts{"n": len(shards)})}, nil
	}
	s.db.shard = &shards[0]
	return nil, nil
}

// checkShards compares which shards the databases say that they are, and returns a finding for each that
// doesn't belong into one list with those before it. Databases that are no shards need not belong together.
func checkShards(databases []*database) (found []Finding) {
	for i, d := range databases {
		for _, other := range databases[:i] {
			if d.shard != nil && other.shard != nil && !fit(*other.shard, *d.shard) {
				found = append(found, d.found("shards-disagree", facts{"first": other.Name, "one": shardText(*other.shard), "second": d.Name, "other": shardText(*d.shard)}))
				break
			}
		}
	}
	return found
}

// fit reports whether two databases may be shards of one list: postgres.Shard names them "0 of 2, rule 1".
func fit(a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	_, of, numbered := strings.Cut(a, " of ")
	_, otherOf, otherNumbered := strings.Cut(b, " of ")
	return a != b && (!numbered || !otherNumbered || of == otherOf)
}

func shardText(shard string) string {
	if shard == "" {
		return "no shard"
	}
	return "shard " + shard
}

func checkOtherSchemas(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	others, err := rows(ctx, d, pgx.RowTo[string], `
		select n.nspname::text from pg_namespace n
		 where n.nspname <> $1
		   and exists (select from pg_proc p where p.pronamespace = n.oid and p.proname = 'record_rejection')
		   and exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'resource' and c.relkind = 'r')
		 order by 1`, d.Schema)
	for _, other := range others {
		shared, failed := rows(ctx, d, pgx.RowTo[string], fmt.Sprintf("select name::text from {schema}.resource r where exists (select from %s.resource o where o.name = r.name) limit 3",
			pgx.Identifier{other}.Sanitize()))
		if failed != nil {
			return found, failed
		}
		if len(shared) > 0 {
			found = append(found, d.found("schemas-share-names", facts{"other": other, "names": shared}))
		}
	}
	return found, err
}

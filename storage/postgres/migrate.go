package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const schemaMark = "{{schema}}"

// Migration is one step of the schema. Until the first release steps may be edited; afterwards a change is a new
// file.
type Migration struct {
	Version int
	Name    string
	SQL     string
	// AppliedAt is zero if the migration was not applied.
	AppliedAt time.Time
}

func (m Migration) Applied() bool { return !m.AppliedAt.IsZero() }

// Migrations returns all migrations for a schema ("" means DefaultSchema), for another tool, which creates the
// schema and applies each in a transaction.
func Migrations(schema string) ([]Migration, error) {
	schema, err := identifierOf(schema)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	migrations := make([]Migration, 0, len(entries))
	for _, entry := range entries {
		text, err := fs.ReadFile(migrationFiles, path.Join("migrations", entry.Name()))
		if err != nil {
			return nil, err
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("postgres: migration file %s: %w", entry.Name(), err)
		}
		sql := strings.ReplaceAll(string(text), schemaMark, schema)
		migrations = append(migrations, Migration{Version: version, Name: name, SQL: sql})
	}
	return migrations, nil
}

func latestVersion() int {
	migrations, _ := Migrations("")
	return migrations[len(migrations)-1].Version
}

// Migrate brings a schema ("" means DefaultSchema) up to date, each migration in a transaction of its own, and
// returns those that it applied. Concurrent calls wait for each other. The role must own the schema, or may create
// it and so become its owner; if there is nothing to do the rights of an app role are enough.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) ([]Migration, error) {
	schema = orDefault(schema)
	migrations, err := Migrations(schema)
	if err != nil {
		return nil, err
	}
	facts, err := readServer(ctx, pool)
	if err != nil {
		return nil, err
	}
	if err := facts.check(true); err != nil {
		return nil, err
	}
	if err := checkRenamed(ctx, pool, schema); err != nil {
		return nil, err
	}
	var applied []Migration
	for _, m := range migrations {
		done, err := migrateOne(ctx, pool, schema, m)
		if err != nil {
			return applied, fmt.Errorf("postgres: migration %d (%s): %w", m.Version, m.Name, nameMigrator(namedError(err), schema))
		}
		if done {
			applied = append(applied, m)
		}
	}
	return applied, nil
}

func nameMigrator(err error, schema string) error {
	switch sqlstate.Of(err) {
	case sqlstate.TableExists, sqlstate.ObjectExists, sqlstate.FunctionExists, sqlstate.NoColumn:
		return foreign(schema, err)
	case sqlstate.NoRights:
		return fmt.Errorf("%w: %w (migrate as the owner of schema %[3]s or, if it is missing, as a role that may create schemas: grant create on database DATABASE to ROLE; then services need only the rights of an app role: fencectl migrate up --schema %[3]s --app-role ROLE; if the schema is another application's, choose another one: --schema NAME)",
			notReady(MissingRights), err, schema)
	}
	return err
}

// "fencekit" in ASCII
const migrationLock = 0x66656e63656b6974

func migrateOne(ctx context.Context, pool *pgxpool.Pool, schema string, m Migration) (bool, error) {
	done := false
	err := record.WriteTx(ctx, pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			fmt.Sprintf("select pg_advisory_xact_lock(%d)", migrationLock),
			"set local client_min_messages = warning",
			"set local search_path = pg_catalog, pg_temp",
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		// CREATE SCHEMA IF NOT EXISTS needs the right to create even where the schema exists.
		table := schemaIdentifier(schema) + ".migration"
		var begun, applied bool
		err := tx.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1), to_regclass($2) is not null", schema, table).Scan(&begun, &applied)
		if applied && err == nil {
			err = tx.QueryRow(ctx, "select exists (select from "+table+" where version = $1)", m.Version).Scan(&applied)
		}
		if applied || err != nil {
			return err
		}
		done = true
		if !begun {
			if _, err := tx.Exec(ctx, "create schema if not exists "+schemaIdentifier(schema)); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, m.SQL)
		return err
	})
	return done && err == nil, err
}

// MigrationStatus returns all migrations of a schema ("" means DefaultSchema). Those of a later version of Fencekit
// come last, without SQL. A schema that was renamed is ErrNotReady.
func MigrationStatus(ctx context.Context, pool *pgxpool.Pool, schema string) ([]Migration, error) {
	schema = orDefault(schema)
	migrations, err := Migrations(schema)
	if err != nil {
		return nil, err
	}
	if err := checkRenamed(ctx, pool, schema); err != nil {
		return nil, err
	}
	err = record.ReadTx(ctx, pool, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "select version, name, applied_at from "+schemaIdentifier(schema)+".migration order by version")
		if err != nil {
			return err
		}
		var applied Migration
		_, err = pgx.ForEachRow(rows, []any{&applied.Version, &applied.Name, &applied.AppliedAt}, func() error {
			i := slices.IndexFunc(migrations, func(m Migration) bool { return m.Version == applied.Version })
			if i < 0 {
				migrations = append(migrations, applied)
			} else {
				migrations[i].AppliedAt = applied.AppliedAt
			}
			return nil
		})
		return err
	})
	if err != nil && !isMissing(err) {
		return nil, fmt.Errorf("postgres: reading migrations: %w", namedError(err))
	}
	return migrations, nil
}

// These routines call others with the owner's rights, and only routines write to the tables.
var (
	appRoutines = []string{"claim", "timeline", "note_timeline", "check_shard", "marks", "look", "begin_check", "check_fences", "refuse", "read_xid", "seal", "hashes", "before_commit", "resolve", "evict", "stale_backends", "end_if_superseded", "record_rejection", "forget", "prune_by_policy", "must_affect", "must_fit",
		"well_formed", "contract_version", "random_tx", "claim_one", "evict_one", "begin_one", "seal_one", "resolve_one", "record_one",
		"lock_open", "lock_renew", "lock_end", "lock_evict", "lock_acquire", "lock_release", "lock_look", "lock_proclaim", "lock_leader", "create_here", "claim_here", "name_key", "silent_here", "evict_here", "free", "take", "retire"}
	appTables = []string{"migration", "resource", "history", "rejection", "operation", "entry", "entry_operation", "current_fence", "queue"}
)

// For Entries, Rejections, package audit and "fencectl doctor". The results of kept operations are not among them.
var (
	readerTables   = []string{"migration", "resource", "history", "rejection", "checkpoint", "hold", "setting", "epoch_raise", "entry", "entry_operation", "current_fence", "protection", "protected_table", "unguarded", "unguarded_write", "lock", "lock_session", "lock_waiter", "lock_eviction", "queue"}
	readerRoutines = []string{"well_formed", "protected_members", "resource_block", "trigger_branch", "trigger_source"}
	readerColumns  = "(resource, key, request, tx, at) on %s.operation"
)

// Roles names the roles beside the schema's owner. An empty name stands for none.
type Roles struct {
	// App may run guarded transactions, and no more; its rights on the user's tables are the user's affair.
	// Services log in as members of it; a member needs pg_signal_backend to evict backends of other roles.
	App string
	// Reader may read fences, history and rejections, for package audit, "fencectl doctor", and the views.
	Reader string
}

var rolePattern = regexp.MustCompile(`^[\pL_][\pL\pN_.@-]*$`)

func (r Roles) validate() error {
	if r.App == "" && r.Reader == "" {
		return fmt.Errorf("%w: postgres.Roles names no role", fence.ErrInvalid)
	}
	if r.App == r.Reader {
		return fmt.Errorf("%w: postgres.Roles has %q as App and as Reader", fence.ErrInvalid, r.App)
	}
	for _, name := range []string{r.App, r.Reader} {
		reserved := name == "public" || name == "none" || strings.HasPrefix(name, "pg_")
		if name != "" && (len(name) > 63 || reserved || !rolePattern.MatchString(name)) {
			return fmt.Errorf("%w: role name %q: want letters, digits and _ . @ - in at most 63 bytes, not beginning with a digit; public, none and pg_... are the server's own",
				fence.ErrInvalid, name)
		}
	}
	return nil
}

// GrantRoles gives the roles exactly the rights that they need in a schema ("" means DefaultSchema), and revokes
// all others there, unless a later version of Fencekit has migrated the schema. It creates missing roles, which can't
// log in. Call it again after a migration that added functions: Store.Check says so. The pool's role must own the
// schema, and have CREATEROLE to create roles.
func GrantRoles(ctx context.Context, pool *pgxpool.Pool, schema string, roles Roles) error {
	sql, err := RolesSQL(schema, roles)
	if err != nil {
		return err
	}
	err = record.WriteTx(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("select pg_advisory_xact_lock(%d); %s", migrationLock, sql))
		return err
	})
	switch {
	case err == nil:
		return nil
	case sqlstate.Of(err) == sqlstate.BadRole:
		return fmt.Errorf("%w: postgres: granting roles: %w", fence.ErrInvalid, err)
	case sqlstate.Of(err) == sqlstate.NoCreateRole:
		return fmt.Errorf("%w: postgres: granting roles: %w", notReady(MissingRights), err)
	}
	return fmt.Errorf("postgres: granting roles: %w", err)
}

// RolesSQL returns the SQL of GrantRoles, for one transaction.
func RolesSQL(schema string, roles Roles) (string, error) {
	schema, err := identifierOf(schema)
	if err != nil {
		return "", err
	}
	if err := roles.validate(); err != nil {
		return "", err
	}
	var sql strings.Builder
	if roles.App != "" {
		sql.WriteString(roleSQL(schema, roles.App, appTables, appRoutines))
	}
	if roles.Reader != "" {
		sql.WriteString(roleSQL(schema, roles.Reader, readerTables, readerRoutines))
		fmt.Fprintf(&sql, "grant select "+readerColumns+" to %[2]s;\ngrant select on all sequences in schema %[1]s to %[2]s;\n", schema, pgx.Identifier{roles.Reader}.Sanitize())
	}
	return sql.String(), nil
}

// roleSQL allows for another database's migration that creates the same role, since roles belong to the whole
// server.
func roleSQL(schema, role string, tables, routines []string) string {
	r := pgx.Identifier{role}.Sanitize()
	in := func(names []string) string { return schema + "." + strings.Join(names, ", "+schema+".") }
	return fmt.Sprintf(`
do $role$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = '%[1]s') then
        if not (select rolcreaterole or rolsuper from pg_catalog.pg_roles where rolname = current_user) then
            raise exception 'role %% may not make role %[1]s: give it CREATEROLE, or make the role first: create role %%', current_user, pg_catalog.quote_ident('%[1]s')
                using errcode = '%[6]s';
        end if;
        create role %[2]s nologin;
    end if;
exception when duplicate_object or unique_violation then
    null;
end $role$;
do $role$
begin
    if pg_catalog.pg_has_role('%[1]s', (select nspowner from pg_catalog.pg_namespace where oid = '%[3]s'::pg_catalog.regnamespace), 'member') then
        raise exception 'role %% is a superuser, the owner of schema %[3]s or a member of that role: it may change fences and history, whatever is granted to it', '%[1]s'
            using errcode = '%[4]s';
    end if;
end $role$;
do $role$
begin
    if not exists (select from %[3]s.migration where version > %[8]d) then
        revoke all on schema %[3]s from %[2]s;
        revoke all on all tables in schema %[3]s from %[2]s;
        revoke all on all sequences in schema %[3]s from %[2]s;
        revoke all on all routines in schema %[3]s from %[2]s;
    end if;
end $role$;
grant usage on schema %[3]s to %[2]s;
grant select on %[5]s to %[2]s;
grant execute on routine %[7]s to %[2]s;
`, role, r, schema, sqlstate.BadRole, in(tables), sqlstate.NoCreateRole, in(routines), latestVersion())
}

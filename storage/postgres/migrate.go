package postgres

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// schemaMark stands for the schema in migration files.
const schemaMark = "{{schema}}"

// Migration is one step of the schema, forward only. Before the first release, steps
// that have landed may still be edited. From the first release on they never change: its
// commit adds the SHA-256 of each file under migrations to a list in migrate_test.go,
// which a test compares with the embedded files, and a change of the schema is a new
// file with the next number.
type Migration struct {
	Version int
	Name    string // such as "schema"
	SQL     string // with the schema filled in
	// AppliedAt is when it was applied; zero if it wasn't.
	AppliedAt time.Time
}

// Applied reports whether the migration was applied.
func (m Migration) Applied() bool { return !m.AppliedAt.IsZero() }

// Migrations returns all migrations for a schema ("" means DefaultSchema), in order, to be
// applied with another tool, each in a transaction. Such a tool creates the schema first;
// Migrate does so itself.
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

// latestVersion is the schema version that this code works with.
func latestVersion() int {
	migrations, _ := Migrations("")
	return migrations[len(migrations)-1].Version
}

func schemaIdentifier(schema string) string { return pgx.Identifier{schema}.Sanitize() }

// Migrate brings a schema ("" means DefaultSchema) up to date, each migration in
// a transaction of its own, and returns the migrations that it applied: none if
// there was nothing to do. Concurrent calls wait for each other. The role owns the
// schema, or has the right to create it and becomes the owner; where there is nothing
// to do the rights of an app role are enough.
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
			return applied, fmt.Errorf("postgres: migration %d (%s): %w", m.Version, m.Name, nameMigrator(wire.NameCached(err), schema))
		}
		if done {
			applied = append(applied, m)
		}
	}
	return applied, nil
}

// nameMigrator adds the remedy to the error of a role that may not migrate, and of a schema that is
// another application's.
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

func orDefault(schema string) string { return cmp.Or(schema, DefaultSchema) }

// identifierOf returns a schema ("" means DefaultSchema) as an identifier.
func identifierOf(schema string) (string, error) {
	schema = orDefault(schema)
	return schemaIdentifier(schema), validateSchema(schema)
}

// migrationLock is the key of the advisory lock that migrations run under.
const migrationLock = 0x66656e63656b6974 // "fencekit"

// migrateOne applies m unless it has been, and reports whether it did. The SQL of
// a migration records that it was applied.
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
		if applied, err := isApplied(ctx, tx, schema, m.Version); applied || err != nil {
			return err
		}
		done = true
		if err := makeSchema(ctx, tx, schema); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, m.SQL)
		return err
	})
	return done && err == nil, err
}

// makeSchema creates the schema if it is missing. CREATE SCHEMA IF NOT EXISTS alone would
// need the right to create one even where it exists.
func makeSchema(ctx context.Context, tx pgx.Tx, schema string) error {
	var exists bool
	if err := tx.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1)", schema).Scan(&exists); exists || err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "create schema if not exists "+schemaIdentifier(schema))
	return err
}

func isApplied(ctx context.Context, tx pgx.Tx, schema string, version int) (applied bool, err error) {
	table := schemaIdentifier(schema) + ".migration"
	var exists bool
	if err := tx.QueryRow(ctx, "select to_regclass($1) is not null", table).Scan(&exists); err != nil || !exists {
		return false, err
	}
	err = tx.QueryRow(ctx, "select exists (select from "+table+" where version = $1)", version).Scan(&applied)
	return applied, err
}

// MigrationStatus returns all migrations of a schema ("" means DefaultSchema), with when
// they were applied. A missing schema has none applied; one that was renamed is ErrNotReady. If a later
// version of Fencekit has migrated the schema, migrations that this version doesn't know come last, without SQL.
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
		return nil, fmt.Errorf("postgres: reading migrations: %w", wire.NameClosed(wire.NameCached(err)))
	}
	return migrations, nil
}

// isMissing reports whether err says that a schema or table doesn't exist.
func isMissing(err error) bool {
	state := sqlstate.Of(err)
	return state == sqlstate.NoTable || state == sqlstate.NoSchema
}

package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Sentinels for a database that can't be used as it is. The errors that wrap
// them say what to do.
var (
	// ErrNotMigrated: the schema is missing or older than this code needs.
	ErrNotMigrated = errors.New("postgres: schema is not up to date")
	// ErrUnsupported: the server's version or settings are not supported.
	ErrUnsupported = errors.New("postgres: server is not supported")
)

// minVersion is the oldest server that the functions work on
// (server_version_num).
const minVersion = 140000

// serverFacts is what decides whether a server can be used.
type serverFacts struct {
	version     int // server_version_num
	versionText string
	recovery    bool
	prepared    int // max_prepared_transactions
}

func readServer(ctx context.Context, pool *pgxpool.Pool) (serverFacts, error) {
	var f serverFacts
	err := pool.QueryRow(ctx, `select current_setting('server_version_num')::int, current_setting('server_version'),
		pg_is_in_recovery(), current_setting('max_prepared_transactions')::int`).
		Scan(&f.version, &f.versionText, &f.recovery, &f.prepared)
	if err != nil {
		return f, fmt.Errorf("postgres: can't ask the server for its version: %w", err)
	}
	return f, nil
}

func (f serverFacts) check() error {
	if f.version < minVersion {
		return fmt.Errorf("%w: it is PostgreSQL %s, and 14 is the oldest that works", ErrUnsupported, f.versionText)
	}
	if f.recovery {
		return fmt.Errorf("%w: it is a standby (in recovery); connect to the primary, as with target_session_attrs=read-write", ErrUnsupported)
	}
	return nil
}

func (f serverFacts) checkPrepared(allow bool) error {
	if f.prepared > 0 && !allow {
		return fmt.Errorf("%w: max_prepared_transactions is %d: a prepared transaction would escape the fence's eviction; set it to 0, or set Config.AllowPreparedTransactions if no guarded code uses PREPARE TRANSACTION",
			ErrUnsupported, f.prepared)
	}
	return nil
}

func checkServer(ctx context.Context, pool *pgxpool.Pool) error {
	facts, err := readServer(ctx, pool)
	if err != nil {
		return err
	}
	return facts.check()
}

// Check reports whether the database can be used: the server's version, its
// role, its settings and the schema. The first claim does the same; call Check
// at start-up to learn early. A success is remembered, a failure is not.
func (s *Store) Check(ctx context.Context) error {
	if s.ready.Load() {
		return nil
	}
	facts, err := readServer(ctx, s.pool)
	if err != nil {
		return err
	}
	if err := errors.Join(facts.check(), facts.checkPrepared(s.cfg.AllowPreparedTransactions)); err != nil {
		return err
	}
	if err := s.checkSchema(ctx); err != nil {
		return err
	}
	s.ready.Store(true)
	return nil
}

func (s *Store) checkSchema(ctx context.Context) error {
	var version int
	table := pgx.Identifier{s.cfg.Schema, "migration"}.Sanitize()
	err := s.pool.QueryRow(ctx, "select coalesce(max(version), 0) from "+table).Scan(&version)
	if err != nil && !isMissing(err) {
		return fmt.Errorf("postgres: can't read the version of schema %s: %w", s.cfg.Schema, err)
	}
	if version < latestVersion() {
		return fmt.Errorf("%w: schema %s is at version %d, %d is needed: run \"fencectl migrate up --schema %s\" or call postgres.Migrate",
			ErrNotMigrated, s.cfg.Schema, version, latestVersion(), s.cfg.Schema)
	}
	return nil
}

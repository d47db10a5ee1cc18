package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// ProtectMode is what the triggers of a protected table do about a write past the guard.
type ProtectMode string

const (
	// ProtectAudit lets the write through, and records it once the transaction commits:
	// see UnguardedWrites.
	ProtectAudit ProtectMode = "audit"
	// ProtectEnforce rejects the write, with SQLSTATE ZF015.
	ProtectEnforce ProtectMode = "enforce"
)

// Protection is how a table is protected.
type Protection struct {
	// Table is its name as SQL, with its schema unless that is in the search_path.
	Table string `json:"table"`
	// Resource is an SQL expression over the columns of a row, without the table's name, that
	// gives the name of the row's resource: 'sku/' || sku.
	Resource string      `json:"resource"`
	Mode     ProtectMode `json:"mode"`
}

// ProtectedTable is a protected table, and the state of its protection.
type ProtectedTable struct {
	Protection
	// Problem says why the protection isn't intact, such as a disabled trigger or a new partition;
	// "" if it is. Protect repairs it.
	Problem string `json:"problem,omitempty"`
	// Unguarded counts the transactions and resources recorded in audit mode; the last was at LastAt.
	Unguarded int64      `json:"unguarded"`
	LastAt    *time.Time `json:"last_at,omitempty"` // nil if there is none
}

// UnguardedWrite says which writes past the guard were recorded in audit mode.
type UnguardedWrite struct {
	Table string `json:"table"`
	// Resource is that of the rows; "" for TRUNCATE, for a row whose resource is null, and behind the
	// first hundred resources of a transaction (Kind "more").
	Resource string `json:"resource"`
	// Kind is insert, update, delete or truncate; commit if the transaction was guarded, and
	// committed without a seal.
	Kind    string    `json:"kind"`
	Role    string    `json:"role"`  // which had logged in
	Count   int64     `json:"count"` // transactions
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
}

// protectLockTimeout bounds how long Protect and Unprotect wait for the table's lock: other writers
// queue behind them.
const protectLockTimeout = 5 * time.Second

// Protect puts triggers on a table of the database that has the schema ("" means DefaultSchema):
// a write commits only in a guarded transaction of the row's own resource. Writers wait while it
// runs. It may be called again, to change the protection or to repair it, and must be after a
// partition or an inheriting table was added. The pool's role owns the schema and the table. It
// fails with fence.ErrInvalid if p can't be used.
func Protect(ctx context.Context, pool *pgxpool.Pool, schema string, p Protection) error {
	if p.Table == "" || p.Resource == "" || p.Mode != ProtectAudit && p.Mode != ProtectEnforce {
		return fmt.Errorf("%w: postgres.Protection needs a Table, a Resource, and ProtectAudit or ProtectEnforce as its Mode", fence.ErrInvalid)
	}
	err := changeProtection(ctx, pool, schema, func(ctx context.Context, tx pgx.Tx, s string) error {
		_, err := tx.Exec(ctx, "select "+s+".protect_table($1::text::regclass, $2, $3)", p.Table, p.Resource, p.Mode == ProtectAudit)
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: protecting %s: %w", p.Table, err)
	}
	return nil
}

// Unprotect removes what Protect has put on a table, and returns whether there was anything. The
// table is as it was before. Rights are as for Protect.
func Unprotect(ctx context.Context, pool *pgxpool.Pool, schema, table string) (was bool, err error) {
	err = changeProtection(ctx, pool, schema, func(ctx context.Context, tx pgx.Tx, s string) error {
		return tx.QueryRow(ctx, "select "+s+".unprotect_table($1::text::regclass)", table).Scan(&was)
	})
	if err != nil {
		return false, fmt.Errorf("postgres: removing the protection of %s: %w", table, err)
	}
	return was, nil
}

func changeProtection(ctx context.Context, pool *pgxpool.Pool, schema string, change func(ctx context.Context, tx pgx.Tx, schema string) error) error {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return err
	}
	err := asOwner(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("set local lock_timeout = %d; select pg_advisory_xact_lock(%d)", ms(protectLockTimeout), migrationLock)); err != nil {
			return err
		}
		return change(ctx, tx, schemaIdentifier(schema))
	})
	switch state := sqlstate.Of(err); {
	case err == nil:
		return nil
	case state == sqlstate.NoRights:
		return fmt.Errorf("%w: %w (connect as a role that owns schema %s and the table)", notReady(MissingRights), err, schema)
	case state == sqlstate.LockTimeout:
		return &TransientError{fmt.Errorf("%w (after %v, since other writers wait meanwhile; nothing was changed: try again when no long transaction uses the table)", err, protectLockTimeout)}
	case len(state) == 5 && (state[:2] == "42" || state == "ZF007" || state == sqlstate.Unsupported):
		return fmt.Errorf("%w: %w", fence.ErrInvalid, err)
	}
	return err
}

// Protected lists the protected tables of a schema ("" means DefaultSchema). The reader role is
// enough.
func Protected(ctx context.Context, pool *pgxpool.Pool, schema string) ([]ProtectedTable, error) {
	return readProtection[ProtectedTable](ctx, pool, schema, `select "table", resource, mode, coalesce(problem, ''), unguarded, last_at from %s.protected_table order by 1`)
}

// UnguardedWrites returns what was recorded in audit mode, the latest first. The reader role is
// enough.
func UnguardedWrites(ctx context.Context, pool *pgxpool.Pool, schema string) ([]UnguardedWrite, error) {
	return readProtection[UnguardedWrite](ctx, pool, schema, `select "table", coalesce(resource, ''), kind, role, count, first_at, last_at from %s.unguarded order by last_at desc, 1, 2, 3, 4`)
}

func readProtection[T any](ctx context.Context, pool *pgxpool.Pool, schema, sql string) ([]T, error) {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return nil, err
	}
	rows, err := pool.Query(ctx, fmt.Sprintf(sql, schemaIdentifier(schema)))
	if err != nil {
		return nil, fmt.Errorf("postgres: reading protected tables: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		return nil, fmt.Errorf("postgres: reading protected tables: %w", err)
	}
	return all, nil
}

package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// ProtectMode says what a protected table does about an unguarded write.
type ProtectMode string

const (
	// ProtectAudit lets the write through, and records it when it commits: see UnguardedWrites.
	ProtectAudit ProtectMode = "audit"
	// ProtectEnforce rejects the write, with SQLSTATE ZF015.
	ProtectEnforce ProtectMode = "enforce"
)

// Protection is how a table is protected.
type Protection struct {
	// Table is the table's name as SQL, with a schema unless that is in the search_path.
	Table string
	// ResourceExpr is an SQL expression over a row's columns, without the table's name, for the row's resource,
	// such as 'sku/' || sku.
	ResourceExpr string
	Mode         ProtectMode
}

// ProtectedTable is a protected table and the state of its protection.
type ProtectedTable struct {
	Protection
	// Problem says why the protection isn't intact, such as a disabled trigger or a new partition, or is "".
	// Protect repairs it, except for the check at COMMIT, for which "fencectl doctor" prints the SQL. For a dropped
	// table call Unprotect.
	Problem string
	// UnguardedWrites counts records of audit mode, one for each transaction and resource.
	UnguardedWrites int64
	LastAt          *time.Time
}

// UnguardedWrite describes unguarded writes that audit mode has recorded.
type UnguardedWrite struct {
	Table string `json:"table"`
	// Resource is that of the rows; "" for TRUNCATE, for a row without a valid resource, and for all resources of a
	// transaction after its first hundred (Kind "more").
	Resource string `json:"resource"`
	// Kind is insert, update, delete or truncate; commit if a guarded transaction committed without a seal; or
	// error if the row's resource or the write could not be recorded, for reasons in the server's log.
	Kind        string    `json:"kind"`
	Role        string    `json:"role"` // that logged in
	Application string    `json:"application"`
	Records     int64     `json:"records"` // one for each transaction and resource, with the kind of its first write
	FirstAt     time.Time `json:"first_at" column:"first"`
	LastAt      time.Time `json:"last_at" column:"last"`
}

// protectLockTimeout bounds the wait for the table's lock, behind which writers queue.
const protectLockTimeout = 5 * time.Second

// Protect puts triggers on a table in the pool's database, so that a row is written only in a guarded transaction
// of the row's own resource, and returns the protection. schema is Fencekit's ("" means DefaultSchema). Writers and
// Protect wait for each other; after 5 s it fails with a *TransientError and changes nothing.
//
// Call it again to change or repair a protection, and after adding a partition or an inheriting table; an empty
// ResourceExpr or Mode then leaves what is there. Otherwise an empty Mode is ProtectAudit. The pool's role must own
// the schema and the table (*NotReadyError with MissingRights). A bad Protection is fence.ErrInvalid, such as an
// expression that fails for a row, or names a virtual generated column, which triggers don't see.
func Protect(ctx context.Context, pool *pgxpool.Pool, schema string, p Protection) (Protection, error) {
	if p.Table == "" || p.Mode != "" && p.Mode != ProtectAudit && p.Mode != ProtectEnforce {
		return Protection{}, fmt.Errorf("%w: postgres.Protection needs a Table, and ProtectAudit, ProtectEnforce or nothing as its Mode", fence.ErrInvalid)
	}
	var now Protection
	err := changeProtection(ctx, pool, schema, "protecting "+p.Table, func(tx pgx.Tx, schema string) error {
		return tx.QueryRow(ctx, `select relation::text, resource, case when audit then 'audit' else 'enforce' end
			from `+schema+".protect_table($1::text::regclass, nullif($2, ''), case $3 when 'audit' then true when 'enforce' then false end)",
			p.Table, p.ResourceExpr, p.Mode).Scan(&now.Table, &now.ResourceExpr, &now.Mode)
	})
	return now, err
}

// Unprotect removes what Protect has put on a table, and reports whether there was anything. A dropped table goes
// by its former name or OID. Rights are as for Protect.
func Unprotect(ctx context.Context, pool *pgxpool.Pool, schema, table string) (was bool, err error) {
	err = changeProtection(ctx, pool, schema, "removing the protection of "+table, func(tx pgx.Tx, schema string) error {
		return tx.QueryRow(ctx, "select "+schema+".unprotect_table(to_regclass($1), $1)", table).Scan(&was)
	})
	return was, err
}

func changeProtection(ctx context.Context, pool *pgxpool.Pool, schema, what string, change func(tx pgx.Tx, schema string) error) error {
	err := asOwner(ctx, pool, schema, what, func(tx pgx.Tx, schema string) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("set local lock_timeout = %d; select pg_advisory_xact_lock(%d)", ms(protectLockTimeout), migrationLock)); err != nil {
			return err
		}
		return change(tx, schema)
	})
	switch state := sqlstate.Of(err); {
	case state == sqlstate.NoRights:
		return fmt.Errorf("%w: %w (connect as a role that owns schema %s and the table)", notReady(MissingRights), err, orDefault(schema))
	case state == sqlstate.LockTimeout:
		return &TransientError{fmt.Errorf("%w (after %v, since other writers wait meanwhile; nothing was changed: try again when no long transaction uses the table)", err, protectLockTimeout)}
	case state == sqlstate.NoFunction:
		return err
	case state == sqlstate.BadArgument, state == sqlstate.Unsupported, strings.HasPrefix(state, "42"):
		return fmt.Errorf("%w: %w", fence.ErrInvalid, err)
	}
	return err
}

// ListProtected lists the protected tables of a schema ("" means DefaultSchema). The reader role may call it.
func ListProtected(ctx context.Context, pool *pgxpool.Pool, schema string) ([]ProtectedTable, error) {
	return readProtection[ProtectedTable](ctx, pool, schema, `select "table", resource, mode, coalesce(problem, ''), unguarded_writes, last_at from %s.protected_table order by 1`)
}

// UnguardedWrites returns what audit mode has recorded, the latest first. The reader role may call it.
func UnguardedWrites(ctx context.Context, pool *pgxpool.Pool, schema string) ([]UnguardedWrite, error) {
	return readProtection[UnguardedWrite](ctx, pool, schema, `select "table", coalesce(resource, ''), kind, role, application, records, first_at, last_at from %s.unguarded order by last_at desc, 1, 2, 3, 4, 5`)
}

func readProtection[T any](ctx context.Context, pool *pgxpool.Pool, schema, sql string) ([]T, error) {
	schema, err := identifierOf(schema)
	if err != nil {
		return nil, err
	}
	var all []T
	err = record.ReadNamedTx(ctx, pool, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, fmt.Sprintf(sql, schema))
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: reading protected tables: %w", err)
	}
	return all, nil
}

package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/internal/wire"
)

// settings fix the form of what is read, whatever the server, the database and the role have set. With
// row_security off the server fails where a policy would hide rows.
const settings = `; set local row_security = off; set local client_encoding = 'UTF8'; set local standard_conforming_strings = on;
	set local datestyle = 'ISO, YMD'; set local intervalstyle = 'postgres'; set local timezone = 'UTC'; set local bytea_output = 'hex'; set local extra_float_digits = 1`

// NoTimeouts are statements for a transaction that reads much: no limit of the role's ends it.
const NoTimeouts = `set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0;
	select set_config(name, '0', true) from pg_settings where name = 'transaction_timeout'`

// Beginner is a pool or a connection. Of a pool's, wire.Acquire finds one.
type Beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// ReadTx runs fn in a transaction that reads, and begins with the statements more, if any. All that depends
// on settings is set for the transaction alone: a pooler may refuse settings of a session, or pass them on
// to others. What policies of row-level security would hide is a *HiddenRowsError.
func ReadTx(ctx context.Context, db Beginner, more string, fn func(pgx.Tx) error) error {
	return ReadNamedTx(ctx, db, "set local search_path = pg_catalog, pg_temp; "+more, fn)
}

// ReadNamedTx is ReadTx with the search_path of the session, for names of tables that its user reads.
func ReadNamedTx(ctx context.Context, db Beginner, more string, fn func(pgx.Tx) error) error {
	// To compile a plan (jit) takes seconds for some views, to run it milliseconds.
	return nameHidden(on(ctx, db, func(db Beginner) error {
		tx, err := db.BeginTx(ctx, begin("read only", "; set local jit = off; "+more))
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }() // a read has nothing to COMMIT, and its answer can't be in doubt
		return fn(tx)
	}))
}

// WriteTx is ReadNamedTx for a transaction that may write.
func WriteTx(ctx context.Context, db Beginner, fn func(pgx.Tx) error) error {
	return nameHidden(on(ctx, db, func(db Beginner) error { return pgx.BeginTxFunc(ctx, db, begin("read write", ""), fn) }))
}

func on(ctx context.Context, db Beginner, do func(Beginner) error) error {
	pool, ok := db.(*pgxpool.Pool)
	if !ok {
		return do(db)
	}
	conn, _, err := wire.Acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	return do(conn)
}

func begin(mode, more string) pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: "begin isolation level read committed " + mode + settings + more}
}

// nameHidden names what policies hide.
func nameHidden(err error) error {
	var answer *pgconn.PgError
	if errors.As(err, &answer) && answer.Routine == "check_enable_rls" { // its code is that of any missing right
		return &HiddenRowsError{Text: answer.Message}
	}
	return err
}

// HiddenRowsError means that row-level security is on for a table of Fencekit's, so that not all of its
// rows can be read. As an error of missing rights it would be misunderstood, so it wraps none.
type HiddenRowsError struct {
	Text string // of the server, with the table
}

// Error says what to do.
func (e *HiddenRowsError) Error() string {
	return fmt.Sprintf("row-level security would hide rows of the record: %s; as the owner of the schema run \"alter table ... disable row level security\" for each of Fencekit's tables (fencectl doctor lists them), "+
		"and see whether an event trigger of the database turns it on", e.Text)
}

// RenamedSchema returns the old and the new name of a schema that was renamed after it was migrated, so that its
// functions don't work. schema is either. If it was not renamed, both are empty.
func RenamedSchema(ctx context.Context, tx pgx.Tx, schema string) (was, is string, err error) {
	err = tx.QueryRow(ctx, `
		select s.was, s.is from (
			select n.nspname as is, replace(substring(p.prosrc from '"((?:[^"]|"")+)"[.]resource'), '""', '"') as was
			  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace where p.proname = 'begin_check') s
		 where s.was <> s.is and (s.is = $1 or s.was = $1 and not exists (select from pg_catalog.pg_namespace where nspname = $1))
		 order by s.is limit 1`, pgx.QueryExecModeExec, schema).Scan(&was, &is)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return was, is, err
}

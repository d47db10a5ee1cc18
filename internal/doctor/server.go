package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/oneline"
)

// minVersion is the oldest server that the functions work on.
const minVersion = 140000

// checkServer finds out whether the database can be examined at all.
func checkServer(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	if d.Pool == nil {
		return []Finding{d.found(postgresUnreachable, d.Err.Error())}, nil
	}
	if ctx.Err() != nil { // it was not asked
		return nil, ctx.Err()
	}
	var text string
	var standby bool
	err := d.row(ctx, "select current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()",
		nil, &d.version, &text, &standby)
	var answer *pgconn.PgError
	switch {
	case errors.As(err, &answer) && strings.Contains(answer.Message, "statement pooling"):
		return []Finding{d.found(poolerStatementMode, answer.Message)}, nil
	case answer != nil && answer.Code == outOfMemory:
		return []Finding{d.found(lockTableExhausted, oneline.Error(err).Error())}, nil
	case answer != nil && answer.Code == "3D000":
		return []Finding{d.found(databaseMissing, answer.Message, "database", pgx.Identifier{d.Pool.Config().ConnConfig.Database}.Sanitize())}, nil
	case err != nil:
		if refused := (*pgconn.ConnectError)(nil); errors.As(err, &refused) {
			err = refused.Unwrap() // without the name of the database: others of the server say the same
		}
		return []Finding{d.found(postgresUnreachable, oneline.Error(err).Error())}, nil
	case d.version < minVersion:
		return []Finding{d.found(postgresVersion, "PostgreSQL "+text)}, nil
	}
	d.answers = true
	if standby {
		return []Finding{d.found(postgresStandby, "pg_is_in_recovery() is true")}, nil
	}
	return nil, nil
}

func checkDurability(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	var fsync, pages string
	if err := d.row(ctx, "select current_setting('fsync'), current_setting('full_page_writes')", nil, &fsync, &pages); err != nil {
		return nil, err
	}
	if fsync == "off" || pages == "off" {
		found = append(found, d.found(durabilityOff, fmt.Sprintf("fsync is %s, full_page_writes is %s", fsync, pages)))
	}
	// Where the setting is off, and the statement that removes it there.
	off, err := d.names(ctx, `
		select format('alter %s reset synchronous_commit',
		              case when s.setdatabase = 0 then format('role %I', r.rolname)
		                   when s.setrole = 0 then format('database %I', b.datname)
		                   else format('role %I in database %I', r.rolname, b.datname) end)
		  from pg_catalog.pg_db_role_setting s
		  left join pg_catalog.pg_database b on b.oid = s.setdatabase
		  left join pg_catalog.pg_roles r on r.oid = s.setrole
		 where 'synchronous_commit=off' = any (s.setconfig) and (s.setdatabase = 0 or b.datname = current_database())
		 union all
		select 'alter system reset synchronous_commit' from pg_catalog.pg_settings
		 where name = 'synchronous_commit' and setting = 'off' and source not in ('database', 'user', 'database user')`)
	for _, statement := range off {
		where := strings.TrimSuffix(strings.TrimPrefix(statement, "alter "), " reset synchronous_commit")
		found = append(found, d.found(synchronousCommitOff, "synchronous_commit is off for "+where, "statement", statement))
	}
	return found, err
}

func checkTimeline(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	var tells bool
	err = d.row(ctx, "select coalesce(bool_and(tells_timeline), true) from "+pgx.Identifier{d.Schema, "setting"}.Sanitize(), nil, &tells)
	if err != nil || tells {
		return nil, err
	}
	return append(found, d.found(timelineUnknown, "the schema's settings say that the server refuses pg_walfile_name")), nil
}

func checkPrepared(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	var slots int
	if err := d.row(ctx, "select current_setting('max_prepared_transactions')::int", nil, &slots); err != nil || slots == 0 {
		return nil, err
	}
	found = append(found, d.found(preparedTransactions, fmt.Sprintf("max_prepared_transactions is %d", slots)))
	// Its locks have no process. They have the virtual id of the lock on its own id.
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
		select distinct p.gid, p.owner::text from pg_catalog.pg_prepared_xacts p
		  join pg_catalog.pg_locks x on x.pid is null and x.locktype = 'transactionid' and x.transactionid = p.transaction
		  join pg_catalog.pg_locks l on l.pid is null and l.virtualtransaction = x.virtualtransaction
		  join pg_catalog.pg_class c on c.oid = l.relation
		  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
		 where p.database = current_database() and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
		   and n.nspname = $1 and `+mayKeepFences+` order by 1`, d.Schema)
		if err != nil {
			return err
		}
		var gid, owner string
		_, err = pgx.ForEachRow(rows, []any{&gid, &owner}, func() error {
			found = append(found, d.found(preparedTransactionOpen, fmt.Sprintf("prepared transaction %q of role %s has locks on the schema's tables", gid, owner), "gid", literal(gid), "owner", owner))
			return nil
		})
		return err
	})
	return found, err
}

// shortTransaction is what a guarded transaction may last by default, with one statement.
const shortTransaction = 5 * time.Second

func checkTimeouts(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	var setting *string
	if err := d.row(ctx, "select setting from (select 1) one left join pg_catalog.pg_settings on name = 'transaction_timeout'", nil, &setting); err != nil || setting == nil {
		return nil, err
	}
	return d.checkTransactionTimeout(*setting), nil
}

// checkTransactionTimeout judges the setting, in milliseconds.
func (d *database) checkTransactionTimeout(setting string) []Finding {
	timeout, err := time.ParseDuration(setting + "ms")
	if err != nil || timeout == 0 || timeout >= shortTransaction {
		return nil
	}
	return []Finding{d.found(transactionTimeout, fmt.Sprintf("transaction_timeout is %v", timeout))}
}

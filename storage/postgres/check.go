package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// MinVersion is the oldest major version of PostgreSQL that works.
const MinVersion = 15

type serverFacts struct {
	other       string // a product other than PostgreSQL
	version     int
	versionText string
	recovery    bool
	prepared    int
	kept        bool
}

// readServer closes connections to standbys: the next one may reach the primary.
func readServer(ctx context.Context, pool *pgxpool.Pool) (f serverFacts, err error) {
	for range tries {
		conn, err := acquireConn(ctx, pool)
		if err != nil {
			return f, err
		}
		f, err = askServer(ctx, conn.Conn())
		if f.recovery {
			wire.CloseNow(conn.Conn().PgConn())
		}
		conn.Release()
		if err != nil || !f.recovery {
			return f, err
		}
	}
	return f, nil
}

// askServer asks in a transaction, since a pooler in statement mode rejects BEGIN.
func askServer(ctx context.Context, conn *pgx.Conn) (f serverFacts, err error) {
	tx, err := conn.Begin(ctx)
	if err == nil {
		err = f.ask(ctx, tx)
		_ = tx.Rollback(ctx)
	}
	switch {
	case err != nil:
		return f, asked("ask the server for its version", err)
	case f.other != "":
		return f, nil
	}
	return f, f.checkPooler(ctx, conn)
}

func (f *serverFacts) ask(ctx context.Context, tx pgx.Tx) error {
	var version string
	if err := tx.QueryRow(ctx, "select version()").Scan(&version); err != nil {
		return err
	}
	f.kept = tx.Conn().PgConn().TxStatus() == 'T'
	for sign, product := range map[string]string{"CockroachDB": "CockroachDB", "-YB-": "YugabyteDB"} {
		if strings.Contains(version, sign) {
			f.other = product
			return nil
		}
	}
	err := tx.QueryRow(ctx, `select current_setting('server_version_num')::int, current_setting('server_version'),
		pg_is_in_recovery(), current_setting('max_prepared_transactions')::int`).
		Scan(&f.version, &f.versionText, &f.recovery, &f.prepared)
	f.kept = f.kept && tx.Conn().PgConn().TxStatus() == 'T'
	return err
}

// checkPooler rejects a pooler that ends a transaction early or moves it to another server connection, and one that
// splits what is sent together: it would run what follows a failed BEGIN, without a fence.
func (f *serverFacts) checkPooler(ctx context.Context, conn *pgx.Conn) error {
	if !f.kept {
		return fmt.Errorf("%w: a pooler in between does not keep a transaction on its server connection, so a statement could commit without a fence; set it to pool transactions or sessions, or connect without it",
			notReady(Unsupported))
	}
	var together pgconn.Batch
	together.ExecParams("select pg_catalog.set_config('fencekit.together', 'yes', true)", nil, nil, nil, nil)
	together.ExecParams("select pg_catalog.current_setting('fencekit.together', true)", nil, nil, nil, nil)
	results, err := conn.PgConn().ExecBatch(ctx, &together).ReadAll()
	if err != nil {
		return asked("ask the server for two answers at once", err)
	}
	if len(results) != 2 || len(results[1].Rows) != 1 || string(results[1].Rows[0][0]) != "yes" {
		return fmt.Errorf("%w: a pooler in between splits what is sent together: after a BEGIN that failed a statement could commit without a fence; connect without it", notReady(Unsupported))
	}
	return nil
}

func (f serverFacts) check(prepared bool) error {
	switch {
	case f.other != "":
		return fmt.Errorf("%w: it is %s, whose locks and transactions differ from those of PostgreSQL that the fence rests on", notReady(Unsupported), f.other)
	case f.version < MinVersion*10000:
		return fmt.Errorf("%w: it is PostgreSQL %s, and %d is the oldest that works", notReady(Unsupported), f.versionText, MinVersion)
	case f.recovery:
		return &TransientError{errStandby} // until a failover has ended, or the DSN names the primary
	case f.prepared > 0 && !prepared:
		return fmt.Errorf("%w: max_prepared_transactions is %d: a prepared transaction would escape the fence's eviction; set it to 0, or set Config.AllowPreparedTransactions if no guarded code uses PREPARE TRANSACTION",
			notReady(Unsupported), f.prepared)
	}
	return nil
}

// Check reports whether the database can be used now: the server's version, role and settings, the schema, and the
// rights on it. Each claim does the same until it has succeeded once. Call Check at start-up and in readiness
// probes.
func (s *Store) Check(ctx context.Context) error {
	facts, err := readServer(ctx, s.pool)
	if err != nil {
		return err
	}
	if err := facts.check(s.cfg.AllowPreparedTransactions); err != nil {
		return err
	}
	if err := checkRenamed(ctx, s.pool, s.cfg.Schema); err != nil {
		return err
	}
	for _, check := range []func(context.Context) error{s.checkSchema, s.checkRights, s.checkTables, s.checkShard, s.checkTimeline} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	if !s.ready.Load() {
		s.warnOfOthers(ctx)
		s.ready.Store(true)
	}
	return nil
}

// CheckEpoch returns the *storage.RejectedError, unrecorded, with which every claim of an epoch would be rejected.
func (s *Store) CheckEpoch(ctx context.Context, epoch int64) error {
	r := &storage.RejectedError{Stage: storage.StageCheck, Grant: fence.Grant{Epoch: epoch}}
	var reach int64
	err := wire.QueryRow(ctx, s.pool, "select * from "+s.sql.schema+".marks()").Scan(&r.Current.Epoch, &r.Current.Token, &reach)
	switch {
	case err != nil:
		return asked("read the epoch", err)
	case epoch < r.Current.Epoch:
		r.Reason = storage.ReasonEpochBehind
	case epoch > reach:
		r.Reason = storage.ReasonTokenJump
	default:
		return nil
	}
	return r
}

func checkRenamed(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	var was, is string
	err := record.ReadTx(ctx, pool, "", func(tx pgx.Tx) (err error) {
		was, is, err = record.RenamedSchema(ctx, tx, schema)
		return err
	})
	switch {
	case err != nil:
		return asked("read the functions of the database", err)
	case was == "":
		return nil
	}
	return fmt.Errorf("%w: schema %s was renamed to %s, and its functions still name %[2]s: as the owner run \"alter schema %[4]s rename to %[5]s\"",
		notReady(NotMigrated), was, is, pgx.Identifier{is}.Sanitize(), pgx.Identifier{was}.Sanitize())
}

func foreign(schema string, err error) error {
	return fmt.Errorf("%w: schema %s holds tables or functions of another application: choose another schema by \"fencectl migrate up --schema NAME\", and postgres.Config.Schema in services: %w",
		notReady(NotMigrated), schema, err)
}

func (s *Store) checkSchema(ctx context.Context) error {
	var version int
	err := record.ReadTx(ctx, s.pool, "", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select coalesce(max(version), 0) from "+s.sql.schema+".migration").Scan(&version)
	})
	switch {
	case sqlstate.Of(err) == sqlstate.NoRights:
		return s.missingRights(ctx, err.Error())
	case sqlstate.Of(err) == sqlstate.NoColumn:
		return foreign(s.cfg.Schema, err)
	case errors.As(err, new(*HiddenRowsError)):
		return fmt.Errorf("%w: %w", notReady(Unsupported), err)
	case err != nil && !isMissing(err):
		return asked(fmt.Sprintf("read the version of schema %s", s.cfg.Schema), err)
	}
	if version < latestVersion() {
		return fmt.Errorf("%w: schema %s is at version %d, %d is needed: run \"fencectl migrate up --schema %s\", or call Migrate of the fencekit.Client or of package postgres",
			notReady(NotMigrated), s.cfg.Schema, version, latestVersion(), s.cfg.Schema)
	}
	return nil
}

func (s *Store) checkRights(ctx context.Context) error {
	var lacking *string
	err := wire.QueryRow(ctx, s.pool, `
		select string_agg(what, ', ' order by what) from (
			select 'execute on ' || p.oid::regprocedure as what
			  from pg_catalog.pg_proc p
			 where p.pronamespace = $1::text::regnamespace and p.proname = any($2)
			   and not has_function_privilege(p.oid, 'execute')
			union all
			select 'select on ' || c.oid::regclass
			  from pg_catalog.pg_class c
			 where c.relnamespace = $1::text::regnamespace and c.relname = any($3)
			   and not has_table_privilege(c.oid, 'select')) lacking`, s.sql.schema, appRoutines, appTables).Scan(&lacking)
	switch {
	case err != nil:
		return asked(fmt.Sprintf("read the rights on schema %s", s.cfg.Schema), err)
	case lacking != nil:
		return s.missingRights(ctx, *lacking)
	}
	return nil
}

// missingRights also finds a member of an app role that doesn't inherit its rights.
func (s *Store) missingRights(ctx context.Context, what string) error {
	var role string
	var member *string
	err := wire.QueryRow(ctx, s.pool, `
		select current_user, (select min(r.rolname) from pg_catalog.pg_roles r
		 where pg_has_role(r.oid, 'member') and not pg_has_role(r.oid, 'usage') and has_schema_privilege(r.oid, n.oid, 'usage')
		   and has_function_privilege(r.oid, p.oid, 'execute'))
		  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace where n.nspname = $1 and p.proname = 'claim'`,
		s.cfg.Schema).Scan(&role, &member)
	if err == nil && member != nil {
		to, of := pgx.Identifier{role}.Sanitize(), pgx.Identifier{*member}.Sanitize()
		return fmt.Errorf("%w: %s; role %s is a member of %s but does not inherit its rights: as an administrator run \"alter role %s inherit\", on PostgreSQL 16 and later \"grant %s to %s with inherit true\"",
			notReady(MissingRights), what, to, of, to, of, to)
	}
	return fmt.Errorf("%w: %s; as the schema's owner run \"fencectl migrate up --schema %s --app-role ROLE\" or call postgres.GrantRoles, for this role or one that it is a member of",
		notReady(MissingRights), what, s.cfg.Schema)
}

// checkTables rejects tables that a crash would empty, and those whose rows row-level security hides from their
// owner, as whom most functions read, or from the role, as which the begin check does.
func (s *Store) checkTables(ctx context.Context) error {
	var unlogged, hidden *string
	err := wire.QueryRow(ctx, s.pool, `
		select string_agg(c.oid::regclass::text, ', ' order by c.oid) filter (where c.relpersistence <> 'p' and c.relname <> 'pending_write'),
		       string_agg(c.oid::regclass::text, ', ' order by c.oid) filter (
		         where c.relrowsecurity and (c.relforcerowsecurity or c.relname = any($2) and row_security_active(c.oid)))
		  from pg_catalog.pg_class c where c.relnamespace = $1::text::regnamespace and c.relkind in ('r', 'p')`,
		s.sql.schema, appTables).Scan(&unlogged, &hidden)
	switch {
	case err != nil:
		return asked(fmt.Sprintf("read the tables of schema %s", s.cfg.Schema), err)
	case unlogged != nil:
		return fmt.Errorf("%w: a crash would empty %s; as the owner run \"alter table ... set logged\" for each", notReady(Unsupported), *unlogged)
	case hidden != nil:
		return fmt.Errorf("%w: %w", notReady(Unsupported), &HiddenRowsError{Text: "it is on for " + *hidden})
	}
	return nil
}

func (s *Store) checkTimeline(ctx context.Context) error {
	answer, err := s.transact(ctx, "select "+s.sql.schema+".note_timeline()", "")
	if err != nil {
		return asked("read the server's timeline", err)
	}
	if answer.First() == "f" && !s.ready.Load() {
		s.cfg.Logger.WarnContext(ctx, "postgres: the server doesn't tell its timeline (pg_walfile_name), as Amazon Aurora: a failover is noticed only if it lost a move of a fence")
	}
	return nil
}

// warnOfOthers logs other schemas with fences. Processes that guard the same data in different schemas don't
// exclude each other, and no error shows that.
func (s *Store) warnOfOthers(ctx context.Context) {
	var others *string
	err := wire.QueryRow(ctx, s.pool, `
		select string_agg(n.nspname, ', ' order by n.nspname) from pg_catalog.pg_namespace n
		 where n.nspname <> $1
		   and exists (select from pg_catalog.pg_proc p where p.pronamespace = n.oid and p.proname = 'record_rejection')
		   and exists (select from pg_catalog.pg_class c
		                where c.relnamespace = n.oid and c.relname = 'resource' and c.relkind = 'r' and pg_relation_size(c.oid) > 0)`,
		s.cfg.Schema).Scan(&others)
	if err == nil && others != nil {
		s.cfg.Logger.WarnContext(ctx, "postgres: other schemas of this database hold fences too; processes that guard the same data must use one schema (postgres.Config.Schema)",
			"schema", s.cfg.Schema, "others", *others)
	}
}

// SetShard makes the database the shard that Config.Shard names, if it is none and holds no fences yet. The pool's
// role must own the migrated schema; if it is that shard already, the rights of an app role are enough. Otherwise
// it fails with a *NotReadyError with OtherShard, whose message has the statement that makes it the shard all the
// same. SetShard and claims and seals wait for each other.
func (s *Store) SetShard(ctx context.Context) error {
	wrong := s.checkShard(ctx)
	if sqlstate.Of(wrong) != sqlstate.OtherShard {
		return wrong
	}
	set := false
	err := record.WriteTx(ctx, s.pool, func(tx pgx.Tx) error {
		schema := s.sql.schema
		// So the next statement's snapshot has the fences of claims under way.
		if _, err := tx.Exec(ctx, "lock table "+schema+".resource in exclusive mode"); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "update "+schema+".setting set shard = $1 where shard is null and not exists (select from "+schema+".resource)", s.cfg.Shard.String())
		set = tag.RowsAffected() == 1
		return err
	})
	switch {
	case err != nil && sqlstate.Of(err) != sqlstate.NoRights:
		return fmt.Errorf("postgres: setting the shard: %w", namedError(err))
	case set:
		return nil
	}
	return wrong
}

func (s *Store) checkShard(ctx context.Context) error {
	err := wire.QueryRow(ctx, s.pool, "select "+s.sql.schema+".check_shard($1)", s.cfg.Shard.String()).Scan(nil)
	switch {
	case sqlstate.Of(err) == sqlstate.OtherShard:
		return s.named(err)
	case err != nil:
		return asked("read which shard the database is", err)
	}
	return nil
}

const sessionState = `
	select 'the setting ' || name || ' = ' || setting from pg_catalog.pg_settings where source = 'session' and name !~ '^transaction_'
	union all select 'the role ' || pg_catalog.current_setting('role')
	union all select 'the session user ' || session_user
	union all select 'the temporary ' || case relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end || ' ' || relname
	  from pg_catalog.pg_class where relnamespace = pg_catalog.pg_my_temp_schema() and relkind in ('r', 'p', 'v', 'S')
	union all select 'the temporary function ' || proname from pg_catalog.pg_proc where pronamespace = pg_catalog.pg_my_temp_schema()
	union all select 'the temporary type ' || typname from pg_catalog.pg_type where typnamespace = pg_catalog.pg_my_temp_schema() and typtype in ('d', 'e', 'r')
	union all select 'LISTEN ' || channel from pg_catalog.pg_listening_channels() channel
	union all select 'the cursor ' || name || ' WITH HOLD' from pg_catalog.pg_cursors where is_holdable
	union all select 'the advisory lock ' || case objsubid when 1 then (classid::bigint << 32 | objid::bigint)::text else '(' || classid || ', ' || objid || ')' end
	  from pg_catalog.pg_locks where locktype = 'advisory' and pid = pg_catalog.pg_backend_pid()
	union all select 'the prepared statement ' || name || ' of ' || statement from pg_catalog.pg_prepared_statements where from_sql`

// SessionStates returns what transactions may have left in each idle connection's session: settings without a dot,
// the role, temporary objects, LISTEN, cursors WITH HOLD, advisory locks, and statements prepared by SQL. It is for
// guardtest.RequireFenced.
func (s *Store) SessionStates(ctx context.Context) (map[int64][]string, error) {
	states := map[int64][]string{}
	for _, conn := range s.pool.AcquireAllIdle(ctx) {
		defer conn.Release()
		var session int64
		var state []string
		if err := conn.QueryRow(ctx, "select pg_catalog.pg_backend_pid(), array("+sessionState+")").Scan(&session, &state); err != nil {
			return nil, err
		}
		states[session] = state
	}
	return states, nil
}

// Watched is for guardtest.RequireFenced. It returns op, after which tables has those that op's transaction has written.
// If tables has some before, nobody else can use these while op runs, and waiting is told each statement that has
// waited for half of Config.StatementTimeout. If op waits for it, the server ends op's transaction, idle for all of that.
func (s *Store) Watched(op storage.Op[pgx.Tx], tables *[]string, waiting func(statement string)) storage.Op[pgx.Tx] {
	return storage.Func[pgx.Tx](func(ctx context.Context, tx pgx.Tx) error {
		if len(*tables) == 0 {
			err := op.Run(ctx, tx)
			_ = tx.QueryRow(ctx, writtenTables, s.sql.schema).Scan(tables)
			return err
		}
		var pid int64
		_, err := tx.Exec(ctx, "do $$ begin lock table "+strings.Join(*tables, ", ")+" in access exclusive mode; exception when others then null; end $$")
		if err = cmp.Or(err, tx.QueryRow(ctx, "select pg_catalog.pg_backend_pid()").Scan(&pid)); err != nil {
			return err
		}
		during, cancel := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { s.watch(during, pid, waiting) })
		defer watching.Wait()
		defer cancel()
		return op.Run(ctx, tx)
	})
}

const writtenTables = `
	select array(select pg_catalog.format('%s.%I', relnamespace::pg_catalog.regnamespace, relname)
	  from pg_catalog.pg_locks l join pg_catalog.pg_class c on c.oid = l.relation
	 where l.pid = pg_catalog.pg_backend_pid() and l.mode = 'RowExclusiveLock' and c.relkind in ('r', 'p') and c.relpersistence <> 't'
	   and c.relnamespace not in ('pg_catalog'::pg_catalog.regnamespace, $1::text::pg_catalog.regnamespace)
	   and pg_catalog.has_table_privilege(c.oid, 'update, delete, truncate') -- or LOCK is refused
	 order by c.oid)`

// watch opens a connection, since op may use all others of the pool.
func (s *Store) watch(ctx context.Context, pid int64, waiting func(statement string)) {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for err == nil {
		var statement string
		err = conn.QueryRow(ctx, `select coalesce(string_agg(query, '; '), '') from pg_catalog.pg_locks join pg_catalog.pg_stat_activity using (pid)
			where not granted and waitstart < clock_timestamp() - $2 * interval '1 ms' and $1 = any (pg_catalog.pg_blocking_pids(pid))`,
			pid, ms(s.cfg.times.Idle/2)).Scan(&statement)
		if statement != "" {
			waiting(statement)
		}
		select {
		case <-time.After(s.cfg.times.Idle / 20):
		case <-ctx.Done():
		}
	}
}

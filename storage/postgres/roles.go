package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// The routines and tables that a Store needs. These routines call the others in the schema
// with the owner's rights, and only routines write to the tables.
var (
	appRoutines = []string{"claim", "timeline", "note_timeline", "check_shard", "begin_check", "begin_check_all", "check_read", "end_read", "read_check", "seal", "seal_all", "before_commit", "resolve", "evict", "stale_backends", "end_if_superseded", "record_rejection", "forget", "prune_by_policy", "must_affect", "must_fit",
		"well_formed", "contract_version", "random_tx", "claim_one", "evict_one", "begin_one", "seal_one", "resolve_one", "record_one"}
	appTables = []string{"migration", "resource", "history", "rejection", "operation", "entry", "entry_operation", "current_fence"}
)

// readerTables are the tables and views that Entries, Rejections, package audit and "fencectl doctor"
// read. The results of kept operations are the callers' own.
var (
	readerTables   = []string{"migration", "resource", "history", "rejection", "checkpoint", "hold", "setting", "epoch_raise", "entry", "entry_operation", "current_fence", "protected_table", "unguarded", "unguarded_write"}
	readerRoutines = []string{"well_formed", "protected_members", "resource_block", "trigger_branch", "trigger_source"} // of the views
	readerColumns  = "(resource, key, request, tx, at) on %s.operation"
)

// Roles names the two kinds of roles beside the owner of a schema. An empty name
// stands for none.
type Roles struct {
	// App may run guarded transactions, and no more: it can change fences, history and
	// rejections only through the functions of the protocol. Fencekit doesn't touch its
	// rights on the user's own tables. Services log in as members of it; a member needs
	// pg_signal_backend to evict backends that logged in as another role.
	App string
	// Reader may read fences, history and rejections: package audit, "fencectl doctor", and the views entry,
	// entry_operation and current_fence.
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

// GrantRoles gives the roles exactly the rights that they need in a schema ("" means
// DefaultSchema), and revokes all others there. A missing role is created, without the
// right to log in. GrantRoles may be called again, and has to be after a migration that
// added functions: Store.Check says so. The pool's role owns the schema; to create roles it
// needs CREATEROLE.
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

// RolesSQL returns the SQL that GrantRoles executes, to be run by other means, in one
// transaction.
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
		fmt.Fprintf(&sql, "grant select "+readerColumns+" to %s;\n", schema, pgx.Identifier{roles.Reader}.Sanitize())
	}
	return sql.String(), nil
}

// roleSQL returns the SQL that creates a role, if it is missing, and gives it these rights in a schema, an
// identifier, and no others. Roles belong to the whole server, so a migration of another database may
// be creating the same one.
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
revoke all on schema %[3]s from %[2]s;
revoke all on all tables in schema %[3]s from %[2]s;
revoke all on all sequences in schema %[3]s from %[2]s;
revoke all on all routines in schema %[3]s from %[2]s;
grant usage on schema %[3]s to %[2]s;
grant select on %[5]s to %[2]s;
grant execute on routine %[7]s to %[2]s;
`, role, r, schema, sqlstate.BadRole, in(tables), sqlstate.NoCreateRole, in(routines))
}

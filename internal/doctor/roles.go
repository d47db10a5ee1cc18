package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/schemadef"
	"github.com/fencekit/fencekit/storage/postgres"
)

// checkRoles looks at the rights of all roles but superusers, the owner of the schema and members of
// its role.
func checkRoles(ctx context.Context, s *target) (found []Finding, err error) {
	for _, look := range []func(*database, context.Context) ([]Finding, error){(*database).writers, (*database).lacking, (*database).notEvicting, (*database).limited} {
		more, err := look(s.db, ctx)
		found = append(found, more...)
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// outsiders are the roles whose rights are restricted at all.
const outsiders = `
	outsider as (
		select r.oid, r.rolname, r.rolcanlogin from pg_catalog.pg_roles r
		 where not r.rolsuper and r.rolname not like 'pg\_%'
		   and not pg_catalog.pg_has_role(r.oid, (select nspowner from pg_catalog.pg_namespace where nspname = $1), 'member'))`

// strayRights are rights that no role but the owner has, of roles or of public, with the statements that
// take them away: to write to tables, or to views, which write with their owner's rights; to make
// functions beside the schema's own; to execute those by default, as after a restore without
// rights; and what comes with owning a part.
const strayRights = `
	with ` + outsiders + `,
	schema as (select * from pg_catalog.pg_namespace where nspname = $1),
	relation as (select c.*, format('%I.%I', $1::text, c.relname) as name from pg_catalog.pg_class c join schema on schema.oid = c.relnamespace where c.relname = any ($2)),
	routine as (select p.*, p.oid::regprocedure::text as name from pg_catalog.pg_proc p join schema on schema.oid = p.pronamespace where p.proname = any ($3)),
	stray (role, may, what, statement) as (
		select a.grantee, 'may write to', relname::text, format('revoke insert, update, delete, truncate, references, trigger on %s from %%s cascade', name)
		  from relation
		 cross join lateral (select (pg_catalog.aclexplode(relacl)).*
		           union all select (pg_catalog.aclexplode(t.attacl)).* from pg_catalog.pg_attribute t where t.attrelid = relation.oid) a
		 where a.grantee <> relowner and a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER')
		union
		select a.grantee, 'may create functions in', 'the schema', format('revoke create on schema %I from %%s cascade', nspname)
		  from schema cross join lateral pg_catalog.aclexplode(nspacl) a where a.privilege_type = 'CREATE'
		union
		select a.grantee, 'may execute', proname::text, format('revoke all on routine %s from %%s cascade', name)
		  from routine cross join lateral pg_catalog.aclexplode(coalesce(proacl, pg_catalog.acldefault('f', proowner))) a where a.grantee = 0
		union
		select relowner, 'owns', relname::text, format('alter table %s owner to %I', name, (select nspowner::regrole from schema)) from relation
		union
		select proowner, 'owns', proname::text, format('alter routine %s owner to %I', name, (select nspowner::regrole from schema)) from routine)
	select coalesce(o.rolname::text, 'public'), may, array_agg(what order by what), array_agg(format(statement, coalesce(quote_ident(o.rolname), 'public')) || ';' order by what)
	  from stray left join outsider o on o.oid = stray.role
	 where stray.role = 0 or o.oid is not null
	 group by 1, 2, o.oid order by 1, 2`

func (d *database) writers(ctx context.Context) (found []Finding, err error) {
	routines, _, err := appRights()
	if err != nil {
		return nil, err
	}
	relations, err := schemadef.Relations()
	if err != nil {
		return nil, err
	}
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, strayRights, d.Schema, relations, routines)
		if err != nil {
			return err
		}
		var role, may string
		var what, statements []string
		_, err = pgx.ForEachRow(rows, []any{&role, &may, &what, &statements}, func() error {
			if len(what) > 3 {
				what = append(what[:3], "...")
			}
			f := d.found(roleMayWrite, fmt.Sprintf("%s %s %s", role, may, joined(what)))
			f.Run = statements
			found = append(found, f)
			return nil
		})
		return err
	})
	return found, err
}

// lacking finds app roles that lack rights: roles that were granted some of an app role's, but not all. What
// a reader role is granted too doesn't make an app role.
func (d *database) lacking(ctx context.Context) (found []Finding, err error) {
	routines, tables, err := appRights()
	if err != nil {
		return nil, err
	}
	shared, _, err := rightsOf(postgres.Roles{Reader: "reader"})
	if err != nil {
		return nil, err
	}
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			with `+outsiders+`,
			app as (
				select distinct o.* from outsider o
				  join pg_catalog.pg_proc p on p.pronamespace = (select oid from pg_catalog.pg_namespace where nspname = $1) and p.proname = any ($2) and p.proname <> all ($4)
				 cross join lateral pg_catalog.aclexplode(p.proacl) a where a.grantee = o.oid and o.oid <> p.proowner),
			lacks as (
				select app.rolname, 'execute on ' || p.proname as what from app
				  join pg_catalog.pg_proc p on p.pronamespace = (select oid from pg_catalog.pg_namespace where nspname = $1) and p.proname = any ($2)
				 where not pg_catalog.has_function_privilege(app.oid, p.oid, 'execute')
				union all
				select app.rolname, 'select on ' || c.relname from app
				  join pg_catalog.pg_class c on c.relnamespace = (select oid from pg_catalog.pg_namespace where nspname = $1) and c.relname = any ($3)
				 where not pg_catalog.has_table_privilege(app.oid, c.oid, 'select')
				union all
				select app.rolname, 'usage on the schema' from app where not pg_catalog.has_schema_privilege(app.oid, $1, 'usage'))
			select rolname::text, count(*), (array_agg(what order by what))[1:3] from lacks group by 1 order by 1`, d.Schema, routines, tables, shared)
		if err != nil {
			return err
		}
		var role string
		var n int64
		var what []string
		_, err = pgx.ForEachRow(rows, []any{&role, &n, &what}, func() error {
			found = append(found, d.found(roleLacksRights, fmt.Sprintf("role %s lacks %s", role, firstOf(n, "right", what)), "role-word", ShellWord(role)))
			return nil
		})
		return err
	})
	return found, err
}

var (
	grantExecute = regexp.MustCompile(`grant execute on routine (.*) to`)
	grantSelect  = regexp.MustCompile(`grant select on (.*) to`)
)

// appRights are the routines and tables that an app role is granted.
func appRights() (routines, tables []string, err error) { return rightsOf(postgres.Roles{App: "app"}) }

// rightsOf are the routines and tables that one role is granted.
func rightsOf(role postgres.Roles) (routines, tables []string, err error) {
	sql, err := postgres.RolesSQL("", role)
	if err != nil {
		return nil, nil, err
	}
	names := func(grant *regexp.Regexp) (names []string) {
		for qualified := range strings.SplitSeq(grant.FindStringSubmatch(sql)[1], ", ") {
			_, name, _ := strings.Cut(qualified, ".")
			names = append(names, name)
		}
		return names
	}
	return names(grantExecute), names(grantSelect), nil
}

// holders are the roles that can log in and claim.
const holders = outsiders + `,
	holder as (
		select o.oid, o.rolname from outsider o
		 where o.rolcanlogin and exists (
			select from pg_catalog.pg_proc p where p.pronamespace = (select oid from pg_catalog.pg_namespace where nspname = $1) and p.proname = 'claim'
			   and pg_catalog.has_function_privilege(o.oid, p.oid, 'execute')))`

// limited finds roles that can't connect, or whose statements end before Fencekit has set limits of its
// own. A statement that removes the limit begins with what is limited, and how.
func (d *database) limited(ctx context.Context) (found []Finding, err error) {
	statements, err := d.names(ctx, `
		with `+holders+`,
		setting as (
			select s.setrole, s.setdatabase, substr(c, 19)::interval as value from pg_catalog.pg_db_role_setting s, unnest(s.setconfig) c
			 where c ~ '^statement_timeout=[0-9]+(us|ms|s|min|h|d)$'
			union all
			select s.setrole, s.setdatabase, substr(c, 19)::bigint * interval '1 ms' from pg_catalog.pg_db_role_setting s, unnest(s.setconfig) c
			 where c ~ '^statement_timeout=[0-9]+$')
		select format('alter role %I connection limit -1', h.rolname) from holder h join pg_catalog.pg_roles r on r.oid = h.oid where r.rolconnlimit = 0
		union all
		select format('alter database %I connection limit -1', datname) from pg_catalog.pg_database where datname = current_database() and datconnlimit = 0
		union all
		select format('alter %s reset statement_timeout',
		              case when s.setdatabase = 0 then format('role %I', h.rolname)
		                   when s.setrole = 0 then format('database %I', b.datname)
		                   else format('role %I in database %I', h.rolname, b.datname) end)
		  from setting s
		  left join pg_catalog.pg_database b on b.oid = s.setdatabase
		  left join holder h on h.oid = s.setrole
		 where s.value > interval '0' and s.value < interval '100 ms'
		   and (s.setdatabase = 0 or b.datname = current_database()) and (s.setrole = 0 or h.oid is not null)
		 order by 1`, d.Schema)
	for _, statement := range statements {
		what := strings.TrimPrefix(statement, "alter ")
		if whose, limit := strings.CutSuffix(what, " connection limit -1"); limit {
			what = whose + " has a connection limit of 0"
		} else {
			what = strings.TrimSuffix(what, " reset statement_timeout") + " has a statement_timeout shorter than 100 ms"
		}
		found = append(found, d.found(roleLimited, what, "statement", statement))
	}
	return found, err
}

// notEvicting finds roles that can log in and claim, and may not end the sessions of another such.
func (d *database) notEvicting(ctx context.Context) (found []Finding, err error) {
	roles, err := d.names(ctx, `
		with `+holders+`
		select a.rolname::text from holder a
		 where not pg_catalog.pg_has_role(a.oid, 'pg_signal_backend', 'usage')
		   and exists (select from holder b where b.oid <> a.oid and not pg_catalog.pg_has_role(a.oid, b.oid, 'usage')) order by 1`, d.Schema)
	for _, role := range roles {
		found = append(found, d.found(rolesCannotEvict, "role "+role+" may claim, and may not end sessions of other roles that claim", "role", pgx.Identifier{role}.Sanitize()))
	}
	return found, err
}

package audit

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
)

// protectionQuery returns what protects the tables, as protection has it, and what weakens that.
const protectionQuery = `
	with fenced as (select c.*, quote_ident(n.nspname) || '.' as prefix from pg_class c join pg_namespace n on n.oid = c.relnamespace
	                 where n.oid = '$schema'::regnamespace and c.relname in ('history', 'resource', 'checkpoint', 'setting', 'rejection', 'operation', 'hold', 'epoch_raise'))
	select 'trigger ' || g.tgname || ' of the table ' || c.relname,
	       case g.tgenabled when 'A' then lower(replace(pg_get_triggerdef(g.oid), c.prefix, '.'))
	                        when 'O' then 'on, unless session_replication_role is replica'
	                        when 'R' then 'on only if session_replication_role is replica' else 'turned off' end
	  from fenced c join pg_trigger g on g.tgrelid = c.oid
	 where not g.tgisinternal and (g.tgtype & 2 = 2 or g.tgname like 'protect\_%') -- an AFTER trigger changes no row
	union all
	select 'unique key ' || x.relname || ' of the table ' || c.relname,
	       concat_ws(', ', (select string_agg(pg_get_indexdef(x.oid, k, false), ', ' order by k) from generate_series(1, i.indnkeyatts) k),
	                 case when i.indpred is not null then 'of some rows alone' end, case when not i.indimmediate then 'deferrable' end, case when not i.indisvalid then 'not valid' end)
	  from fenced c join pg_index i on i.indrelid = c.oid join pg_class x on x.oid = i.indexrelid
	 where i.indisunique
	union all
	select 'function ' || p.proname,
	       string_agg(lower(l.lanname || case when p.provolatile <> 'v' then ' not volatile' else '' end || case when p.prosecdef then ' security definer' else '' end ||
	                        coalesce((select string_agg(' set ' || replace(s, '=', ' = '), '' order by n) from unnest(p.proconfig) with ordinality c (s, n)), '')) ||
	                  ' as ' || encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex'), ' and ')
	  from pg_proc p join pg_language l on l.oid = p.prolang
	 where p.pronamespace = '$schema'::regnamespace
	 group by p.proname
	union all
	select 'table ' || c.relname, w.weakness
	  from fenced c
	  cross join lateral (select 'no plain table' where c.relkind <> 'r'
	                union all select 'not logged' where c.relpersistence <> 'p'
	                union all select 'under row-level security' where c.relrowsecurity
	                union all select 'under the rule ' || r.rulename from pg_rewrite r where r.ev_class = c.oid and c.relkind = 'r'
	                union all select 'a parent of ' || h.inhrelid::regclass::text from pg_inherits h where h.inhparent = c.oid
	                union all select 'a part of ' || h.inhparent::regclass::text from pg_inherits h where h.inhrelid = c.oid) w (weakness)`

// verifyTables reports where the tables aren't protected as the migrations protect them.
func (v *verification) verifyTables(ctx context.Context, s *snapshot, conn *pgx.Conn) error {
	made, err := protection(s.d.schema)
	if err != nil {
		return err
	}
	missing := maps.Clone(made)
	err = s.copyOut(ctx, conn, strings.ReplaceAll(protectionQuery, "$schema", s.d.schema), func(c *record.Columns) error {
		part, found := c.Text(), c.Text()
		delete(missing, part)
		if want, ok := made[part]; c.Err() == nil && found != want && (ok || weakens(part)) {
			v.findings.add(Finding{Kind: FindingUnprotectedTable, Text: "The " + part + " " + problem(part, want, found) + ".", Expected: want, Found: found})
		}
		return c.Err()
	})
	for _, part := range slices.Sorted(maps.Keys(missing)) {
		v.findings.add(Finding{Kind: FindingUnprotectedTable, Text: "The " + part + " is missing: " + consequence(part) + ".", Expected: missing[part], Found: "none"})
	}
	return err
}

// weakens reports whether a part that the migrations don't make weakens what they make. Other
// functions and unique keys don't.
func weakens(part string) bool {
	return strings.HasPrefix(part, "table ") || strings.HasPrefix(part, "trigger ")
}

// problem says what is wrong with a part that is there.
func problem(part, want, found string) string {
	switch kind, _, _ := strings.Cut(part, " "); {
	case kind == "table":
		return "is " + found + ": statements may not do what they say, or not pass its triggers"
	case want == "":
		return "isn't Fencekit's: it could change what is written"
	case kind == "trigger" && !strings.HasPrefix(found, "create "):
		return "is " + found + ": " + consequence(part)
	}
	return "isn't as the migrations make it: " + consequence(part)
}

// consequence says what could happen without a part.
func consequence(part string) string {
	switch kind, _, _ := strings.Cut(part, " "); kind {
	case "trigger":
		return "rows could be changed or deleted"
	case "unique":
		return "rows could be doubled"
	}
	return "statements may not do what they should"
}

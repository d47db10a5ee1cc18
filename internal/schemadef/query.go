package schemadef

import "strings"

// partsQuery returns what protects the tables, as made.parts has it, and what weakens that.
const partsQuery = `
	with fenced as (select c.*, quote_ident(n.nspname) || '.' as prefix from pg_class c join pg_namespace n on n.oid = c.relnamespace
	                 where n.oid = '"$schema"'::regnamespace and c.relname in ($tables))
	select 'function', p.proname::text, '',
	       string_agg(lower(l.lanname || case when p.provolatile <> 'v' then ' not volatile' else '' end || case when p.prosecdef then ' security definer' else '' end ||
	                        coalesce((select string_agg(' set ' || replace(s, '=', ' = '), '' order by n) from unnest(p.proconfig) with ordinality c (s, n)), '')) ||
	                  case when p.prosqlbody is null then ' as ' || encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex') else ' in standard SQL' end, ' and ')
	  from pg_proc p join pg_language l on l.oid = p.prolang
	 where p.pronamespace = '"$schema"'::regnamespace
	 group by p.proname
	union all
	select 'trigger', g.tgname::text, c.relname::text,
	       case g.tgenabled when 'A' then lower(replace(pg_get_triggerdef(g.oid), c.prefix, '.'))
	                        when 'O' then 'on, unless session_replication_role is replica'
	                        when 'R' then 'on only if session_replication_role is replica' else 'turned off' end
	  from fenced c join pg_trigger g on g.tgrelid = c.oid
	 where not g.tgisinternal -- an AFTER trigger changes no row, but it can fail, or write elsewhere
	union all
	select 'unique key', x.relname::text, c.relname::text,
	       concat_ws(', ', (select string_agg(pg_get_indexdef(x.oid, k, false), ', ' order by k) from generate_series(1, i.indnkeyatts) k),
	                 case when i.indpred is not null then 'of some rows alone' end, case when not i.indimmediate then 'deferrable' end, case when not i.indisvalid then 'not valid' end)
	  from fenced c join pg_index i on i.indrelid = c.oid join pg_class x on x.oid = i.indexrelid
	 where i.indisunique
	union all
	select 'view', c.relname::text, '', '' from pg_class c where c.relnamespace = '"$schema"'::regnamespace and c.relkind = 'v'
	union all
	select case when c.oid is null then 'domain' else 'table' end || ' constraint', k.conname::text, coalesce(c.relname, t.typname)::text, pg_get_constraintdef(k.oid)
	  from pg_constraint k left join fenced c on c.oid = k.conrelid left join pg_type t on t.oid = k.contypid
	 where k.connamespace = '"$schema"'::regnamespace and k.contype in ('c', 'f', 'x') and (c.oid is not null or t.oid is not null)
	union all
	select 'table', c.relname::text, '', w.weakness
	  from fenced c
	  cross join lateral (select 'no plain table' where c.relkind <> 'r'
	                union all select 'not logged' where c.relpersistence <> 'p' and c.relname not in ($unlogged)
	                union all select 'under row-level security' where c.relrowsecurity
	                union all select 'under the rule ' || quote_ident(r.rulename) from pg_rewrite r where r.ev_class = c.oid and c.relkind = 'r'
	                union all select 'a parent of ' || h.inhrelid::regclass::text from pg_inherits h where h.inhparent = c.oid
	                union all select 'a part of ' || h.inhparent::regclass::text from pg_inherits h where h.inhrelid = c.oid) w (weakness)`

func (m *made) query(schema string) string {
	in := func(names []string) string { return "'" + strings.Join(names, "', '") + "'" }
	return strings.NewReplacer("$schema", schema, "$tables", in(m.tables), "$unlogged", in(m.unlogged)).Replace(partsQuery)
}

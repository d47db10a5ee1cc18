-- The unguarded writes from $1 to $2. One whose resource isn't known counts whatever the pattern, $3. And the tables of
-- the database that weren't protected from $1 on, or whose unguarded writes aren't recorded since there is no room:
-- but for Fencekit's own, those of extensions, and partitions.
with unguarded as (
    select relation::text as "table", coalesce(resource, '') as resource, kind, role, application, count(*) as records, min(at) as first_at, max(at) as last_at
      from @unguarded_write
     where at >= $1 and at < $2 and (resource is null or resource like $3)
     group by 1, 2, 3, 4, 5),
unprotected as (
    select c.oid::regclass::text as name
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
     where c.relkind in ('r', 'p') and c.relpersistence <> 't' and not c.relispartition
       and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
       and not exists (select from pg_class own where own.relnamespace = n.oid and own.relname = 'pending_write')
       and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
       and not exists (select from @protected_table t cross join lateral @protected_members(to_regclass(t."table")) m
                        where m.member = c.oid and t.problem is null and t.at <= $1
                          and (t.mode = 'enforce' or pg_relation_size('@unguarded_write') < 16777216)))
select json_build_object(
    'counts', (select json_build_object('unguarded_writes', coalesce(sum(records), 0), 'unguarded_kinds', count(*)) from unguarded),
    'unguarded', (select coalesce(json_agg(x), '[]') from (
        select * from unguarded order by first_at, "table", resource, kind, role, application limit 1000) x),
    'unprotected_tables', (select coalesce(json_agg(name order by name), '[]') from unprotected))

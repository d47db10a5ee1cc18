-- The rights of all roles but superusers, the owner of the schema and members of its role.
with outsider as (
    select r.oid, r.rolname, r.rolcanlogin, r.rolconnlimit from pg_roles r
     where not r.rolsuper and r.rolname not like 'pg\_%'
       and not pg_has_role(r.oid, (select nspowner from pg_namespace where nspname = @schema), 'member')),
schema as (select * from pg_namespace where nspname = @schema),
relation as (select c.*, format('%I.%I', @schema::text, c.relname) as name from pg_class c join schema on schema.oid = c.relnamespace),
routine as (select p.*, p.oid::regprocedure::text as name from pg_proc p join schema on schema.oid = p.pronamespace),

-- Rights that no role but the owner has, of roles or of public, with the statements that take them away: to write to
-- tables, or to views, which write with their owner's rights; to make functions beside the schema's own; to execute
-- those by default, as after a restore without rights; and what comes with owning a part.
stray (role, may, what, statement) as (
    select a.grantee, 'may write to', relname::text, format('revoke insert, update, delete, truncate, references, trigger on %s from %%s cascade;', name)
      from relation
     cross join lateral (select (aclexplode(relacl)).*
               union all select (aclexplode(t.attacl)).* from pg_attribute t where t.attrelid = relation.oid) a
     where relname = any (@relations) and a.grantee <> relowner and a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER')
    union
    select a.grantee, 'may create functions in', 'the schema', format('revoke create on schema %I from %%s cascade;', nspname)
      from schema cross join lateral aclexplode(nspacl) a where a.privilege_type = 'CREATE'
    union
    select a.grantee, 'may execute', proname::text, format('revoke all on routine %s from %%s cascade;', name)
      from routine cross join lateral aclexplode(coalesce(proacl, acldefault('f', proowner))) a where proname = any (@routines) and a.grantee = 0
    union
    select relowner, 'owns', relname::text, format('alter table %s owner to %I;', name, (select nspowner::regrole from schema)) from relation where relname = any (@relations)
    union
    select proowner, 'owns', proname::text, format('alter routine %s owner to %I;', name, (select nspowner::regrole from schema)) from routine where proname = any (@routines)),

-- Roles that were granted some of an app role's rights, but not all. What a reader role is granted too doesn't make
-- an app role.
app as (
    select distinct o.oid, o.rolname from outsider o
      join routine p on p.proname = any (@routines) and p.proname <> all (@reader_routines)
     cross join lateral aclexplode(p.proacl) a where a.grantee = o.oid and o.oid <> p.proowner),
lacks as (
    select app.rolname, 'execute on ' || p.proname as what from app join routine p on p.proname = any (@routines)
     where not has_function_privilege(app.oid, p.oid, 'execute')
    union all
    select app.rolname, 'select on ' || c.relname from app join relation c on c.relname = any (@tables)
     where not has_table_privilege(app.oid, c.oid, 'select')
    union all
    select app.rolname, 'usage on the schema' from app where not has_schema_privilege(app.oid, @schema, 'usage')),

-- Roles that can log in and claim.
holder as (
    select o.* from outsider o
     where o.rolcanlogin and exists (select from routine p where p.proname = 'claim' and has_function_privilege(o.oid, p.oid, 'execute'))),
timeout as materialized (
    select s.setrole, s.setdatabase, b.datname, (v.text || case when v.text ~ '[a-z]$' then '' else ' ms' end)::interval as value
      from pg_db_role_setting s
      left join pg_database b on b.oid = s.setdatabase
     cross join lateral (select substr(c, 19) as text from unnest(s.setconfig) c where c ~ '^statement_timeout=[0-9]+(us|ms|s|min|h|d)?$') v
     where s.setdatabase = 0 or b.datname = current_database()),
-- Limits that end connections, or statements before Fencekit has set limits of its own.
limits (whose, what, statement) as (
    select format('role %I', rolname), 'connection limit of 0', 'connection limit -1' from holder where rolconnlimit = 0
    union all
    select format('database %I', datname), 'connection limit of 0', 'connection limit -1' from pg_database where datname = current_database() and datconnlimit = 0
    union all
    select case when t.setdatabase = 0 then format('role %I', h.rolname)
                when t.setrole = 0 then format('database %I', t.datname)
                else format('role %I in database %I', h.rolname, t.datname) end, 'statement_timeout shorter than 100 ms', 'reset statement_timeout'
      from timeout t left join holder h on h.oid = t.setrole
     where t.value > interval '0' and t.value < interval '100 ms' and (t.setrole = 0 or h.oid is not null))

select 'role-may-write' as finding, coalesce(o.rolname::text, 'public') as role, may, null::bigint as n, array_agg(what order by what) as what,
       array_agg(format(statement, coalesce(quote_ident(o.rolname), 'public')) order by what) as run
  from stray left join outsider o on o.oid = stray.role
 where stray.role = 0 or o.oid is not null
 group by 2, 3
union all
select 'role-lacks-rights', rolname::text, null, count(*), array_agg(what order by what), null from lacks group by rolname
union all
select 'roles-cannot-evict', a.rolname::text, null, null, null, null from holder a
 where not pg_has_role(a.oid, 'pg_signal_backend', 'usage')
   and exists (select from holder b where b.oid <> a.oid and not pg_has_role(a.oid, b.oid, 'usage'))
union all
select 'role-limited', whose, what, null, null, array[format('alter %s %s;', whose, statement)] from limits
 order by 1, 2, 3

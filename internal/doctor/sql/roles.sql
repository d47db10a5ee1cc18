-- Who owns the parts of the schema, and what roles may do and can't.
with schema as (select * from pg_namespace where nspname = @schema),
relation as (select c.*, format('%I.%I', @schema::text, c.relname) as name from pg_class c join schema on schema.oid = c.relnamespace where c.relname = any (@relations)),
routine as (select p.*, p.oid::regprocedure::text as name from pg_proc p join schema on schema.oid = p.pronamespace),
part (name, owner, whole) as (
    select 'the schema', nspowner, format('schema %I', nspname) from schema
    union all
    select relname::text, relowner, 'table ' || name from relation
    union all
    select proname::text, proowner, 'routine ' || name from routine
    union all
    select typname::text, typowner, format('domain %I.%I', @schema::text, typname) from pg_type join schema on schema.oid = typnamespace where typtype = 'd'),
-- The functions work with the rights of whoever owns nearly all; the schema alone may have been given away.
owner as (select oid, rolname from pg_roles where oid = (select mode() within group (order by owner) from part)),

outsider as (
    select r.* from pg_roles r
     where not r.rolsuper and r.rolname not like 'pg\_%' and not pg_has_role(r.oid, (select oid from owner), 'member')),

-- Memberships that give rights, which one with ADMIN alone doesn't.
membership as (
    select m.member, m.roleid from pg_auth_members m, to_jsonb(m) j
     where coalesce((j ->> 'inherit_option')::boolean, true) or coalesce((j ->> 'set_option')::boolean, true)),
-- Roles that were granted an app role's rights, which are more than a reader role's, and their members.
app as (
    select distinct r.oid, r.rolname from routine p
     cross join lateral aclexplode(p.proacl) a join pg_roles r on r.oid = a.grantee
     where p.proname = any (@routines) and p.proname <> all (@reader_routines) and r.oid not in (p.proowner, (select oid from owner))),
service as (
    select r.* from pg_roles r
     where r.oid <> (select oid from owner) and r.oid in (
         with recursive of (oid) as (select oid from app union select m.member from membership m join of on of.oid = m.roleid) select oid from of)),

-- Roles that may change everything, and those that reach one by a membership. Who administers the server's roles
-- may, too.
mighty as (
    with recursive of (oid) as (
        select oid from pg_roles where rolname = 'pg_write_all_data' or rolsuper or oid = (select oid from owner)
        union
        select m.member from membership m join of on of.oid = m.roleid)
    select oid from of),
writer as (
    with recursive of (oid) as (
        select oid from pg_roles where rolname = 'pg_write_all_data'
        union
        select m.member from membership m join of on of.oid = m.roleid)
    select oid from of),

-- Rights that no role but the owner has, of roles or of public, with the statements that take them away: to write to
-- tables, or to views, which write with their owner's rights; to make functions beside the schema's own; to execute
-- those by default, as after a restore without rights; what comes with owning a part; and those of a service that was
-- made mighty.
stray (role, may, what, statement) as (
    select a.grantee, 'may write to', relname::text, format('revoke insert, update, delete, truncate, references, trigger on %s from %%s cascade;', name)
      from relation
     cross join lateral (select (aclexplode(relacl)).*
               union all select (aclexplode(t.attacl)).* from pg_attribute t where t.attrelid = relation.oid) a
     where a.grantee <> relowner and a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER')
    union
    select a.grantee, 'may create functions in', 'the schema', format('revoke create on schema %I from %%s cascade;', nspname)
      from schema cross join lateral aclexplode(nspacl) a where a.privilege_type = 'CREATE' and a.grantee <> nspowner
    union
    select a.grantee, 'may execute', proname::text, format('revoke all on routine %s from %%s cascade;', name)
      from routine cross join lateral aclexplode(coalesce(proacl, acldefault('f', proowner))) a where proname = any (@routines) and a.grantee = 0
    union
    select owner, 'owns', name, format('alter %s owner to %I;', whole, (select rolname from owner)) from part),
may_write (role, may, what, statement) as (
    select r.rolname::text, s.may, s.what, format(s.statement, coalesce(quote_ident(r.rolname), 'public'))
      from stray s left join pg_roles r on r.oid = s.role
     where s.role = 0 or r.oid in (select oid from outsider)
        or s.may = 'owns' and s.what = 'the schema' and s.role <> (select oid from owner) and not has_schema_privilege((select oid from owner), @schema, 'usage')
    union all
    select rolname::text, 'is', 'a superuser', format('alter role %I nosuperuser;', rolname) from service where rolsuper and oid <> 10
    union all
    select r.rolname::text, 'is a member of', g.rolname::text, format('revoke %I from %I;', g.rolname, r.rolname)
      from membership m join pg_roles r on r.oid = m.member join pg_roles g on g.oid = m.roleid
     where not r.rolsuper and not r.rolcreaterole
       and (r.oid in (select oid from service) and g.oid in (select oid from mighty) and g.oid not in (select oid from service)
            or r.oid in (select oid from outsider where rolcanlogin) and g.oid in (select oid from writer) and g.oid not in (select oid from service))),

lacks (role, what, statement) as (
    select o.rolname, 'execute on ' || p.proname, null from app join outsider o using (oid) join routine p on p.proname = any (@routines)
     where not has_function_privilege(o.oid, p.oid, 'execute')
    union all
    select o.rolname, 'select on ' || c.relname, null from app join outsider o using (oid) join relation c on c.relname = any (@tables)
     where not has_table_privilege(o.oid, c.oid, 'select')
    union all
    select o.rolname, 'usage on the schema', null from app join outsider o using (oid) where not has_schema_privilege(o.oid, @schema, 'usage')
    union all -- the owner, of its own
    select rolname, w.may || ' on ' || c.relname, format('grant all on %s to %I;', c.name, rolname)
      from owner cross join relation c cross join unnest(array['select', 'insert', 'update', 'delete']) w (may)
     where c.relkind = 'r' and c.relowner = owner.oid and not has_table_privilege(owner.oid, c.oid, w.may)
    union all
    select rolname, 'execute on ' || p.proname, format('grant all on routine %s to %I;', p.name, rolname) from owner cross join routine p
     where p.proowner = owner.oid and not has_function_privilege(owner.oid, p.oid, 'execute')
    union all
    select rolname, 'usage on the schema', format('grant all on schema %I to %I;', nspname, rolname) from owner cross join schema
     where nspowner = owner.oid and not has_schema_privilege(owner.oid, schema.oid, 'usage')),

-- Roles that can log in and claim.
holder as (
    select o.* from outsider o
     where o.rolcanlogin and exists (select from routine p where p.proname = 'claim' and has_function_privilege(o.oid, p.oid, 'execute'))),
-- Limits on time that Fencekit doesn't replace, or not before its first statements: the shortest that are of use.
shortest (name, value, finding) as (values
    ('statement_timeout', interval '100 ms', 'role-limited'), ('idle_in_transaction_session_timeout', '100 ms', 'role-limited'),
    ('idle_session_timeout', '1 s', 'role-limited'), ('transaction_timeout', '5 s', 'transaction-timeout')),
timeout (name, setrole, setdatabase, value) as (
    select split_part(c, '=', 1), s.setrole, s.setdatabase, (split_part(c, '=', 2) || case when c ~ '[a-z]$' then '' else ' ms' end)::interval
      from pg_db_role_setting s cross join lateral unnest(s.setconfig) c where c ~ '^[a-z_]+_timeout=[0-9]+(us|ms|s|min|h|d)?$'
    union all
    select s.name, null, null, (reset_val || ' ms')::interval from pg_settings s -- of the whole server
     where s.name like '%\_timeout' and s.unit = 'ms' and not exists (
         select from pg_db_role_setting d cross join lateral unnest(d.setconfig) c
          where d.setrole in (0, (select oid from pg_roles where rolname = session_user)) and starts_with(c, s.name || '='))),
-- Limits that keep roles from connecting, or end connections, or statements before Fencekit has set limits of its own.
limits (finding, whose, what, statement) as (
    select 'role-limited', format('role %I', rolname), 'has a connection limit of 0', format('alter role %I connection limit -1;', rolname) from holder where rolconnlimit = 0
    union all
    select 'role-limited', format('role %I', rolname), 'has a password that expired', format('alter role %I valid until ''infinity'';', rolname) from holder where rolvaliduntil < now()
    union all
    select 'role-limited', format('role %I', rolname), 'may not log in, and no member can for it', format('alter role %I login;', rolname)
      from service s where not rolcanlogin and not exists (select from pg_auth_members m where m.roleid = s.oid and m.member in (select oid from service))
    union all
    select 'role-limited', format('role %I', rolname), 'may not connect to the database', format('grant connect on database %I to %I;', current_database(), rolname)
      from holder where not has_database_privilege(oid, current_database(), 'connect')
    union all
    select 'role-limited', format('database %I', datname), 'has a connection limit of 0', format('alter database %I connection limit -1;', datname)
      from pg_database where datname = current_database() and datconnlimit = 0
    union all
    select l.finding, place, format('has %s %s shorter than %s', case when name like 'i%' then 'an' else 'a' end, name, case when l.value < interval '1 s' then extract(milliseconds from l.value)::int || ' ms' else extract(seconds from l.value)::int || ' s' end),
           format(case when t.setrole is null then 'alter %s set %s = 0;' else 'alter %s reset %s;' end, place, name)
      from timeout t join shortest l using (name)
      left join holder h on h.oid = t.setrole
     cross join lateral (select case when t.setrole is null then 'system' when t.setdatabase = 0 then format('role %I', h.rolname)
                                     when t.setrole = 0 then format('database %I', current_database())
                                     else format('role %I in database %I', h.rolname, current_database()) end as place) p
     where t.value > interval '0' and t.value < l.value
       and (t.setrole is null or h.oid is not null or t.setrole = 0)
       and (t.setdatabase is null or t.setdatabase in (0, (select oid from pg_database where datname = current_database()))))

select 'role-may-write' as finding, coalesce(role, 'public') as role, may, null::bigint as n, array_agg(what order by what) as what, array_agg(statement order by what) as run
  from may_write group by 2, 3
union all
select 'role-lacks-rights', role::text, null, count(*), array_agg(what order by what), array_agg(distinct statement) filter (where statement is not null)
  from lacks group by role
union all
select 'roles-cannot-evict', a.rolname::text, null, null, null, null from holder a
 where not pg_has_role(a.oid, 'pg_signal_backend', 'usage')
   and exists (select from holder b where b.oid <> a.oid and not pg_has_role(a.oid, b.oid, 'usage'))
union all
select finding, whose, what, null, null, array_remove(array[statement, case when whose = 'system' then 'select pg_reload_conf();' end], null) from limits
 order by 1, 2, 3

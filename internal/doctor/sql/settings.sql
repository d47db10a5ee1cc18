-- Settings that lose what was acknowledged, or make guarded transactions fail. synchronous_commit is looked for
-- wherever it may be set, with the statement that removes it there.
select 'durability-off' as finding,
       format('fsync is %s, full_page_writes is %s', current_setting('fsync'), current_setting('full_page_writes')) as value,
       null::text[] as run
 where 'off' in (current_setting('fsync'), current_setting('full_page_writes'))
union all
select 'synchronous-commit-off', place, array[format('alter %s reset synchronous_commit;', place), 'select pg_reload_conf();']
  from (
    select case when s.setdatabase = 0 then format('role %I', r.rolname)
                when s.setrole = 0 then format('database %I', b.datname)
                else format('role %I in database %I', r.rolname, b.datname) end as place
      from pg_db_role_setting s
      left join pg_database b on b.oid = s.setdatabase
      left join pg_roles r on r.oid = s.setrole
     where 'synchronous_commit=off' = any (s.setconfig) and (s.setdatabase = 0 or b.datname = current_database())
    union all
    select 'system' from pg_settings
     where name = 'synchronous_commit' and setting = 'off' and source not in ('database', 'user', 'database user')) off
union all
select 'prepared-transactions', setting, null from pg_settings where name = 'max_prepared_transactions' and setting <> '0'
union all
-- A guarded transaction with one statement may last 5 s by default.
select 'transaction-timeout', setting || ' ms', null from pg_settings where case when name = 'transaction_timeout' then setting::bigint between 1 and 4999 end

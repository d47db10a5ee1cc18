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
-- WAL that the server keeps for a consumer that is away, beyond what it keeps anyway, until the disk is full.
select 'replication-slot-idle', format('%s slot %s keeps %s', slot_type, slot_name, pg_size_pretty(pg_wal_lsn_diff(
           case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end, restart_lsn))),
       array[format('select pg_drop_replication_slot(%L);', slot_name)]
  from pg_replication_slots where not active and wal_status in ('extended', 'unreserved') and current_setting('max_slot_wal_keep_size') = '-1'

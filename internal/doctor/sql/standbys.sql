-- Whether COMMIT waits for one of the standbys that stream from the server. Patroni is known by the names of its
-- sessions. Without pg_monitor the state of a standby is null, and its name may be.
with standby as (
    select r.application_name, r.sync_state, r.state from pg_stat_replication r
      join pg_stat_activity a on a.pid = r.pid
     where a.datid is null -- what decodes changes logically is connected to a database
       and coalesce(r.application_name, '') not in ('pg_basebackup', 'pg_receivewal') and coalesce(r.state, '') <> 'backup'),
seen as (
    select current_setting('synchronous_standby_names') as setting,
           (select count(*) from standby) as n,
           array(select coalesce(application_name, '') from standby order by 1) as names,
           coalesce((select 'ANY 1 (' || string_agg('"' || replace(application_name, '"', '""') || '"', ', ' order by application_name) || ')' from standby
                      having bool_and(application_name <> '')), 'ANY 1 (*)') as "any",
           exists (select from standby where state is null) as hidden,
           exists (select from standby where sync_state in ('sync', 'quorum')) as synchronous,
           exists (select from pg_stat_activity where application_name ilike 'patroni%') as patroni)
select finding, setting, n, names, "any",
       'standbys' as about, 'this role doesn''t see whether they are synchronous' as cause, 'Connect as a role in pg_monitor.' as advice
  from seen
 cross join lateral (select case when setting = '' and patroni then 'patroni-asynchronous'
                                 when setting = '' and n > 0 then 'standby-asynchronous'
                                 when setting <> '' and hidden then 'not-checked'
                                 when setting <> '' and not synchronous then 'synchronous-standby-missing' end as finding) f
 where finding is not null

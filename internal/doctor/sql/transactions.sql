-- Transactions that may keep a fence locked: prepared ones, and those that are older than @open seconds. One that
-- writes to a protected table is noted in two other tables; one that vacuums locks no rows. The locks of a prepared
-- transaction have no process. They have the virtual id of the lock on its own id.
with kept as (
    select l.pid, l.virtualtransaction from pg_locks l
      join pg_class c on c.oid = l.relation
      join pg_namespace n on n.oid = c.relnamespace
     where l.database = (select oid from pg_database where datname = current_database()) and l.granted
       and n.nspname = @schema and c.relkind = 'r' and c.relname not in ('pending_write', 'unguarded_write')
       and l.mode not in ('AccessShareLock', 'ShareUpdateExclusiveLock', 'SIReadLock'))
select distinct 'prepared-transaction-open' as finding, null::integer as pid, p.gid, p.owner::text as role, null as state, null as age,
       null as about, null as cause, null as advice
  from pg_prepared_xacts p
  join pg_locks x on x.pid is null and x.locktype = 'transactionid' and x.transactionid = p.transaction
  join kept on kept.pid is null and kept.virtualtransaction = x.virtualtransaction
 where p.database = current_database()
union all
select distinct 'transaction-open', a.pid, null, coalesce(a.usename::text, ''), coalesce(a.state, ''), date_trunc('second', now() - a.xact_start)::text, null, null, null
  from kept join pg_stat_activity a on a.pid = kept.pid
 where a.backend_type = 'client backend' and a.xact_start < now() - make_interval(secs => @open)
union all
select distinct 'not-checked', null::integer, null, null, null, null, 'open transactions',
       'this role doesn''t see how old those are that have locked tables of the schema', 'Connect as a role in pg_monitor.'
  from kept join pg_stat_activity a on a.pid = kept.pid
 where a.state is null and a.backend_type is null and kept.virtualtransaction = any (@held)
 order by 1, 2, 3

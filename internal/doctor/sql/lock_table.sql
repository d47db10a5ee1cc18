-- How full the server's table of locks is: without locks on the fast path, and predicate locks. The capacity is
-- a lower bound: the server lets the table grow a little into memory that is left over. No table and no view is
-- read, since there may be no room left for a lock on one.
with entry as (
    select distinct locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid, objsubid, pid
      from pg_lock_status() where not fastpath and mode <> 'SIReadLock'),
most as (select pid, count(*) as locks from entry where pid is not null group by pid order by locks desc, pid limit 1),
lock_table as (
    select (select count(*) from (select distinct locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid, objsubid from entry) e) as used,
           each * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint
                   + current_setting('autovacuum_max_workers')::bigint + 1 + current_setting('max_worker_processes')::bigint
                   + current_setting('max_wal_senders')::bigint) as capacity,
           each
      from (select current_setting('max_locks_per_transaction')::bigint as each) s)
select case when used >= capacity then 'lock-table-full' else 'lock-table-filling' end as finding,
       used, capacity, each, 4 * each as raised, most.pid,
       format('process %s ("%s") with %s', most.pid, (select a.application_name from pg_stat_get_activity(most.pid) a where a.pid = most.pid), locks) as holder
  from lock_table left join most on true
 where 2 * used > capacity

-- Logical replication into the database.
select case when n.nspname = @schema then 'subscription-on-fences' else 'subscription-in-database' end as finding,
       s.subname::text as subscription, count(*) as n, array_agg(format('%I.%I', n.nspname, c.relname) order by n.nspname, c.relname) as tables
  from pg_subscription_rel r
  join pg_subscription s on s.oid = r.srsubid
  join pg_class c on c.oid = r.srrelid
  join pg_namespace n on n.oid = c.relnamespace
 where s.subenabled and s.subdbid = (select oid from pg_database where datname = current_database())
 group by 1, 2 order by 2, 1

-- One key that should have gone. The index on the times finds it, if there is one.
select 'once-keys-kept' as finding, once_retention::text as retention
  from {schema}.setting
 where exists (select from {schema}.operation where at < clock_timestamp() - once_retention - interval '1 day')
union all
select 'once-retention-short', once_retention::text from {schema}.setting where once_retention < interval '1 hour'

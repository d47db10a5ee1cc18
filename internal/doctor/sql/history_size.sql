select 'history-large' as finding, pg_size_pretty(size) as size
  from pg_total_relation_size('{schema}.history') size
 where size > @history_bytes and not exists (select from {schema}.setting where history_keep is not null)

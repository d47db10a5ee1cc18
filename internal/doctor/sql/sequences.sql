-- The next number that each table's sequence gives, if it has none, or if rows have it and higher ones. Sequences are
-- read after the snapshot in which the rows are.
select 'sequence-unusable' as finding, "table", coalesce(next::text, 'none') as next, coalesce(highest, 0) as highest,
       array[format('alter sequence {schema}.%s_id_seq increment by 1 maxvalue %s no cycle;', "table", possible),
             format('select setval(''{schema}.%s_id_seq'', %s);', "table", greatest(highest, 1))] as run
  from (select 'resource' as "table", 2147483647 as possible, (select max(id) from {schema}.resource)::bigint as highest, * from {schema}.resource_id_seq
        union all select 'protection', 2147483647, (select max(id) from {schema}.protection), * from {schema}.protection_id_seq
        union all select 'rejection', 9223372036854775807, (select max(id) from {schema}.rejection), * from {schema}.rejection_id_seq
        union all select 'unguarded_write', 9223372036854775807, (select max(id) from {schema}.unguarded_write), * from {schema}.unguarded_write_id_seq
        union all select 'lock_waiter', 9223372036854775807, (select max(id) from {schema}.lock_waiter), * from {schema}.lock_waiter_id_seq
        union all select 'lock_eviction', 9223372036854775807, (select max(id) from {schema}.lock_eviction), * from {schema}.lock_eviction_id_seq) t
  join pg_sequence s on s.seqrelid = format('{schema}.%I', "table" || '_id_seq')::regclass
 cross join lateral (select case when not is_called then last_value::numeric when last_value::numeric + seqincrement <= seqmax then last_value + seqincrement end as next) n
 where next is null or next > seqmax or next <= highest

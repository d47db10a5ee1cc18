-- The next number that each table's sequence gives, if it has none, or if rows have it and higher ones. Sequences are
-- read after the snapshot in which the rows are.
select 'sequence-unusable' as finding, "table", coalesce(next::text, 'none') as next, coalesce(highest, 0) as highest,
       array[format('alter sequence {schema}.%s increment by 1 maxvalue %s no cycle;', sequence, possible),
             format('select setval(''{schema}.%s'', %s);', sequence, greatest(highest, 1))] as run
  from (select 'resource' as "table", 2147483647 as possible, (select max(id) from {schema}.resource)::bigint as highest, * from {schema}.resource_id_seq
        union all select 'protection', 2147483647, (select max(id) from {schema}.protection), * from {schema}.protection_id_seq
        union all select 'rejection', 9223372036854775807, (select max(id) from {schema}.rejection), * from {schema}.rejection_id_seq
        union all select 'unguarded_write', 9223372036854775807, (select max(id) from {schema}.unguarded_write), * from {schema}.unguarded_write_id_seq
        union all select 'lock_waiter', 9223372036854775807, (select max(id) from {schema}.lock_waiter), * from {schema}.lock_waiter_id_seq
        union all select 'lock_eviction', 9223372036854775807, (select max(id) from {schema}.lock_eviction), * from {schema}.lock_eviction_id_seq
        union all select 'lock', 4611686018427387903, null, * from {schema}.lock_token) t -- tokens are above the rows' anyway
 cross join lateral (select case "table" when 'lock' then 'lock_token' else "table" || '_id_seq' end as sequence) q
  join pg_sequence s on s.seqrelid = format('{schema}.%I', sequence)::regclass
 cross join lateral (select case when not is_called then last_value::numeric when last_value::numeric + seqincrement <= seqmax then last_value + seqincrement end as next) n
 where next is null or next > seqmax or next <= highest

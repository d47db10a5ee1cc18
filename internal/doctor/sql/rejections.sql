-- Holders that found the database in an older state.
select 'database-went-back' as finding, count(distinct resource) as n, array_agg(distinct resource::text) as names,
       min(resource::text) as resource, to_char(max(last_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as last
  from {schema}.rejection where reason = 'went back' and epoch >= (select max(epoch) from {schema}.setting)
having count(*) > 0

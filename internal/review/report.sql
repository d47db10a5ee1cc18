-- What a Report says of the time from $1 to $2, or to now, and of the resources like $3. Lists have the first 1,000 rows.
entry as not materialized (
    select * from @entry x
     where at >= $1 and at < least($2, now()) and resource like $3
       and ten_minutes between date_bin('10 minutes', $1, '2000-01-01 00:00:00Z') and date_bin('10 minutes', least($2, now()), '2000-01-01 00:00:00Z')),
rejection as (select * from all_rejections where resource like $3 and last_at >= $1 and first_at < least($2, now())),
pruned as (select resource, first_position, first_at, claim_position from all_pruned where resource like $3 and latest >= $1),
-- A claim ended the tenure of the grant before it, which may have no entry in this time.
held as (
    select resource, resource_id, claim_position, case when kind = 'write' then at end as wrote_at from entry
    union all
    select e.resource, e.resource_id, b.claim, null from entry e join @history b on b.resource = e.resource_id and b.seq = e.position - 1 where e.kind = 'claim'),
tenure as (
    select h.resource, json_build_object('epoch', c.epoch, 'token', c.token, 'holder', c.holder) as "grant", c.at as claimed_at, n.at as ended_at,
           h.last_write_at, h.writes, greatest(extract(epoch from h.last_write_at - greatest(c.at, $1)), 0) as seconds, h.claim_position
      from (select resource, resource_id, claim_position, count(wrote_at) as writes, max(wrote_at) as last_write_at from held group by 1, 2, 3) h
      left join @history c on c.resource = h.resource_id and c.seq = h.claim_position and c.kind = 'c'
      left join lateral (select at from @history n where n.kind = 'c' and n.name = h.resource and n.seq > h.claim_position order by n.seq limit 1) l on true
      left join lateral (select l.at where l.at >= $1 and l.at < least($2, now())) n on true)
select json_build_object(
    'until', least($2, now()),
    'record_begins_at', least(
        (select min(e.at) from @resource r left join @checkpoint c on c.resource = r.id
           join @history e on e.resource = r.id and e.seq = coalesce(c.first, 1) where r.name like $3),
        (select min(first_at) from @rejection where resource like $3)),
    'counts', (
        select jsonb_build_object(
            'resources', count(distinct resource), 'resources_written', count(distinct resource) filter (where kind = 'write'),
            'writes', count(*) filter (where kind = 'write'), 'claims', count(*) filter (where kind = 'claim'), 'voids', count(*) filter (where kind = 'void'),
            'operations', coalesce(sum(case @well_formed(ops) when true then json_array_length(ops) when false then 1 end), 0))
          from entry) || (
        select jsonb_build_object(
            'rejection_records', count(*), 'rejected_attempts_max', coalesce(sum(count), 0),
            'rejected_attempts_min', coalesce(sum(case when first_at >= $1 and last_at < least($2, now()) then count
                                                       when first_at >= $1 or last_at < least($2, now()) then 1 else 0 end), 0))
          from rejection) || (
        select jsonb_build_object('pruned_resources', count(*)) from pruned),
    'pruned', (select coalesce(json_agg(x), '[]') from (select * from pruned order by resource limit 1000) x),
    'rejections', (select coalesce(json_agg(x), '[]') from (select * from rejection order by resource, id limit 1000) x),
    'claims', (select coalesce(json_agg(x), '[]') from (
        select e.resource, e.position, e.at, json_build_object('epoch', e.epoch, 'token', e.token, 'holder', e.holder) as "grant",
               case when c.seq is not null then json_build_object('epoch', c.epoch, 'token', c.token, 'holder', c.holder) end as before
          from entry e
          left join @history b on b.resource = e.resource_id and b.seq = e.position - 1
          left join @history c on c.resource = b.resource and c.seq = b.claim and c.kind = 'c'
         where e.kind = 'claim' order by e.resource, e.position limit 1000) x),
    'voids', (select coalesce(json_agg(x), '[]') from (
        select resource, position, at, json_build_object('epoch', epoch, 'token', token, 'holder', holder) as "grant"
          from entry where kind = 'void' order by resource, position limit 1000) x),
    'tenures', (select coalesce(json_agg(x), '[]') from (
        select resource, "grant", claimed_at, ended_at, last_write_at, writes, seconds from tenure
         order by seconds desc, resource desc, claim_position desc limit 10) x))

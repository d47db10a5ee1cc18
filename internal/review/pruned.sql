-- Where the histories of resources begin of which entries were pruned.
select r.name as resource, c.first as first_position, e.at as first_at, case when e.claim < c.first then e.claim end as claim_position, c.latest
  from @checkpoint c
  join @resource r on r.id = c.resource
  join @history e on e.resource = c.resource and e.seq = c.first

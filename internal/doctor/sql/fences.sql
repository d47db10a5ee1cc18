-- Compares with their history the fences after number @after, up to @page of them, and counts the entries if @count.
-- A fence and its history move together, so that one statement never sees them differ. Most fences take two look-ups:
-- of the last entry, and of the claim, which a fence repeats. Only numbers that no fence has are looked up in the
-- history for deleted fences: one whose claims are pruned has no name. A fence that is ahead with the hash of the last
-- entry was moved by hand; where entries are lost it has the hash of one of those.
with page as materialized (
    select r.id, r.name::text as name, r.seq, r.claim_seq, coalesce(c.first, 1) as first, coalesce(h.last, 0) as last,
           (r.hash, r.tx, r.claim_seq) is distinct from (h.hash, h.tx, h.claim) as moved, r.seq > h.last and r.hash = h.hash as ahead, r.epoch, r.token, r.timeline, r.holder, r.claimed_at
      from {schema}.resource r
      left join lateral (select first from {schema}.checkpoint c where c.resource = r.id limit 1) c on true
      left join lateral (select seq as last, hash, tx, claim from {schema}.history h where h.resource = r.id order by h.seq desc limit 1) h on true
     where r.id > @after order by r.id limit @page),
gap as (
    select * from (
        select lag(id::bigint, 1, @after::bigint) over (order by id) as low, id::bigint as high from page
        union all
        select coalesce(max(id), @after::bigint), 2147483648 from page having count(*) < @page) g
     where high > low + 1),
orphan as (
    select h.resource from gap
     cross join lateral (select resource from {schema}.history where resource > low and resource < high order by resource, seq limit 1) h)
select count(*), coalesce(max(id), 0),
       array(select name from (
           select (select name::text from {schema}.history c where c.resource = o.resource and c.kind = 'c' order by seq desc limit 1) from orphan o) d (name)
        where name is not null) as deleted,
       array_agg(name) filter (where last > seq) as behind,
       array_agg(name) filter (where changed) as changed,
       array_agg(name) filter (where lost) as lost
  from page
 cross join lateral (
    select seq > 0 and last <= seq and not coalesce(ahead, false) and (
               last < seq
               or not exists (select from {schema}.history h where h.resource = page.id and h.seq = page.claim_seq)
               or first <> claim_seq and not exists (select from {schema}.history h where h.resource = page.id and h.seq = page.first)
               or @count and seq - first + 1 <> (select count(*) from {schema}.history h where h.resource = page.id and h.seq between page.first and page.seq)) as lost,
           coalesce(ahead, false) or seq > 0 and last = seq and (moved or exists (
               select from {schema}.history h where h.resource = page.id and h.seq = page.claim_seq
                  and (h.epoch, h.token, h.timeline, h.holder, h.at) is distinct from (page.epoch, page.token, page.timeline, page.holder, page.claimed_at))) as changed
    offset 0) l

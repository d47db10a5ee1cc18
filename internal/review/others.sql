-- The other resources that the transaction of the entry at position $2 of $1 wrote, which was recorded at $3. Those
-- entries are from about the same time: a transaction seals all its resources with one statement, and a minute is far
-- longer than that may wait for the locks of fences.
select coalesce(json_agg(format('%s (position %s)', o.resource, o.position) order by o.resource), '[]')
  from @entry e
  join @entry o on o.tx = e.tx and o.xid = e.xid and o.resource <> e.resource and o.kind = 'write'
 where e.resource = $1 and e.position = $2
   and o.ten_minutes between date_bin('10 minutes', $3::timestamptz - interval '1 minute', '2000-01-01 00:00:00Z')
                         and date_bin('10 minutes', $3::timestamptz + interval '1 minute', '2000-01-01 00:00:00Z')

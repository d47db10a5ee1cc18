-- Completes events.sql: the claim of a rejected grant at position $2, and what came just before and after the claim of
-- the newer one at position $3 and the rejection at $4.
position = any (array[$2::bigint] || array(
    select generate_series(p - 2, p + 2) from unnest(array[$3::bigint, coalesce(
        (select min(position) - 1 from @entry x
          where resource = $1 and at >= $4::timestamptz and ten_minutes >= date_bin('10 minutes', $4::timestamptz, '2000-01-01 00:00:00Z')),
        (select position from @current_fence x where resource = $1))]) p))

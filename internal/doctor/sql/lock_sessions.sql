-- Sessions of locks in this database last an hour at most, and are renewed; and what they own of an epoch that is over.
select 'lock-session-endless' as finding, s.id as session, s.label, s.expires_at::text as expires,
       (select count(*) from {schema}.lock l where l.session = s.id) as n,
       null as resource, null::bigint as token, null as holder, null::bigint as epoch, null::bigint as now, null::text[] as run
  from {schema}.lock_session s where s.expires_at > clock_timestamp() + interval '1 day'
union all
select 'lock-of-older-epoch', null, null, null, null, l.resource::text, l.token, l.holder::text, l.epoch, x.epoch,
       array[format('select {schema}.lock_evict(%L, %s, %L, session_user);', l.resource, l.token, 'its epoch is over')]
  from {schema}.lock l join {schema}.lock_session s on s.id = l.session cross join {schema}.setting x
 where s.expires_at > clock_timestamp() and l.epoch < x.epoch

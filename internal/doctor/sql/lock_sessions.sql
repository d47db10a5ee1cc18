-- Sessions of locks in this database last an hour at most, and are renewed.
select 'lock-session-endless' as finding, s.id as session, s.label, s.expires_at::text as expires,
       (select count(*) from {schema}.lock l where l.session = s.id) as n
  from {schema}.lock_session s where s.expires_at > clock_timestamp() + interval '1 day'

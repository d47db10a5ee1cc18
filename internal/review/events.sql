-- Entries as an Event has them: those of the resource $1 to which the condition at the end applies.
select coalesce(json_agg(json_build_object(
           'kind', kind, 'position', position, 'at', at, 'grant', json_build_object('epoch', epoch, 'token', token, 'holder', holder),
           'tx', tx::text, 'ops', ops, 'claim_position', claim_position) order by position), '[]')
  from (select * from @entry x where resource = $1 and 

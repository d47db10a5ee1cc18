-- Views for people and for package audit, with names instead of numbers and words instead of letters.

insert into {{schema}}.migration (version, name) values (4, 'views');

-- The history by time: BRIN, because entries come in roughly the order of their times. They are rounded to ten
-- minutes, so that an entry in the space of a pruned one rarely rewrites the summary of its page range.
create index history_at on {{schema}}.history using brin (date_bin('10 minutes', at, '2000-01-01 00:00:00Z')) with (autosummarize = on);

-- An entry has the grant of its claim, or none if the claim is missing.
create view {{schema}}.entry as
select r.name as resource,
       e.seq as "position",
       case e.kind when 'c' then 'claim' when 'w' then 'write' when 'v' then 'void' else e.kind::text end as kind,
       e.at,
       c.epoch,
       c.token,
       c.holder,
       e.claim as claim_position,
       e.tx,
       e.xid,
       e.ops,
       encode(e.hash, 'hex') as hash,
       e.resource as resource_id,
       date_bin('10 minutes', e.at, '2000-01-01 00:00:00Z') as ten_minutes
  from {{schema}}.resource r
  join {{schema}}.history e on e.resource = r.id
  left join {{schema}}.history c on c.resource = e.resource and c.seq = e.claim and c.kind = 'c';

comment on view {{schema}}.entry is 'The history: one row for each move of a fence. Order by resource, position; filter by them too, where possible.';
comment on column {{schema}}.entry."position" is 'how many moves the fence had made; without gaps, but for what was pruned';
comment on column {{schema}}.entry.kind is 'claim: a grant raised the fence; write: a guarded transaction committed; void: a COMMIT of unknown outcome was ruled out';
comment on column {{schema}}.entry.at is 'the server''s clock at the move; positions, not times, are the order';
comment on column {{schema}}.entry.epoch is 'of the grant, as token and holder; compared before the token';
comment on column {{schema}}.entry.token is 'the fencing token of the grant that made the move';
comment on column {{schema}}.entry.holder is 'the holder of the grant: a label and a nonce';
comment on column {{schema}}.entry.claim_position is 'the position at which that grant claimed the resource';
comment on column {{schema}}.entry.tx is 'the random name of the transaction; the same for all resources of a transaction';
comment on column {{schema}}.entry.xid is 'the server''s own id of the transaction';
comment on column {{schema}}.entry.ops is 'what the operations of a write recorded; see entry_operation';
comment on column {{schema}}.entry.hash is 'SHA-256 over the entry and the hash before it, in hexadecimal';
comment on column {{schema}}.entry.resource_id is 'the number of the resource in the tables';
comment on column {{schema}}.entry.ten_minutes is 'the beginning of the ten minutes in which at lies: it has an index';

-- well_formed reports whether ops are null or an array of operations whose texts and numbers the server can
-- represent: \u0000, for example, it can't.
create function {{schema}}.well_formed(ops json) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_ops jsonb;
begin
    v_ops := ops::jsonb; -- here, where its errors are caught
    return jsonb_typeof(v_ops) = 'array'
       and not v_ops @? 'strict $[*] ? (@.type() != "object")'
       and not v_ops @? 'strict $[*].keyvalue() ? (!((@.key == "id" || @.key == "name") && @.value.type() == "string" || @.key == "attrs" && @.value.type() == "object"))'
       and not v_ops @? 'strict $[*].keyvalue() ? (@.key == "attrs").value.keyvalue() ? (@.value.type() != "string")';
exception when data_exception or program_limit_exceeded then
    return false;
end $$;
revoke all on function {{schema}}.well_formed(json) from public;

-- Malformed ops are one operation, as record.Ops has them.
create view {{schema}}.entry_operation as
select e.resource,
       e."position",
       o.number,
       o.op ->> 'id' as id,
       o.op ->> 'name' as name,
       o.op -> 'attrs' as attrs,
       e.at,
       e.epoch,
       e.token,
       e.holder,
       e.tx,
       e.ten_minutes
  from {{schema}}.entry e
 cross join lateral json_array_elements(
           case {{schema}}.well_formed(e.ops)
               when true then e.ops
               when false then json_build_array(json_build_object('attrs', json_build_object('malformed', e.ops::text)))
           end) with ordinality o (op, number);

comment on view {{schema}}.entry_operation is 'What the operations of writes recorded (guard.OpID, guard.OpName, guard.OpAttr): one row for each; writes that recorded nothing have none, and what is no array of operations is one with the attribute malformed.';
comment on column {{schema}}.entry_operation.number is 'the place of the operation within its transaction, from 1';
comment on column {{schema}}.entry_operation.id is 'guard.OpID';
comment on column {{schema}}.entry_operation.name is 'guard.OpName';
comment on column {{schema}}.entry_operation.attrs is 'guard.OpAttr: an object of texts';

create view {{schema}}.current_fence as
select r.name as resource,
       r.seq as "position",
       r.epoch,
       r.token,
       r.holder,
       r.claim_seq as claim_position,
       r.claimed_at,
       r.tx,
       encode(r.hash, 'hex') as hash,
       r.id as resource_id
  from {{schema}}.resource r;

comment on view {{schema}}.current_fence is 'The fences: one row for each resource, with the grant that claimed it last.';
comment on column {{schema}}.current_fence."position" is 'of the last move, which has the last entry of the history';
comment on column {{schema}}.current_fence.claim_position is 'the position at which the present grant claimed the resource';
comment on column {{schema}}.current_fence.hash is 'of the last entry, in hexadecimal';

create index rejection_resource on {{schema}}.rejection (resource, id);

comment on table {{schema}}.rejection is 'Grants that a fence rejected: one row for equal rejections, with their count.';
comment on column {{schema}}.rejection.reason is 'the reason; docs/runbook.md, "Calls fail with", explains each';
comment on column {{schema}}.rejection.stage is 'the step of the guarded operation';
comment on column {{schema}}.rejection.holder is 'the rejected holder; epoch and token are its grant''s';
comment on column {{schema}}.rejection.current_holder is 'the holder that had the fence, under current_epoch and current_token, since current_since';

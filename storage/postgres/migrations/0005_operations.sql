-- Operations that are to take effect once (guard.Once). Nobody else pays for this
-- table.

insert into {{schema}}.migration (version, name) values (5, 'operations');

-- One row per resource and key, written by the transaction of the operation.
create table {{schema}}.operation (
    resource integer     not null,
    key      text        collate "C" not null,
    request  bytea       not null, -- hash of what was asked for
    result   bytea,                -- what was answered, as JSON
    tx       bigint      not null, -- the transaction, as in the history
    at       timestamptz not null,
    primary key (resource, key),
    constraint operation_key     check (octet_length(key) between 1 and 200),
    constraint operation_request check (octet_length(request) = 32),
    constraint operation_result  check (octet_length(result) between 1 and 65536)
);

-- Rows are written in about the order of their times, and only looked for by time
-- to be forgotten.
create index operation_at on {{schema}}.operation using brin (at);

-- For how long operations are kept at least.
alter table {{schema}}.setting add column once_retention interval not null default '7 days',
    add constraint setting_once_retention check (once_retention >= '1 minute');

-- keep keeps an operation, in the transaction that has moved the resource's fence
-- as p_tx: so nothing is kept but what is behind a move (guard.Store.Recall).
create procedure {{schema}}.keep(p_resource integer, p_tx bigint, p_key_hex text, p_request_hex text, p_result_hex text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    perform from {{schema}}.resource where id = p_resource and tx = p_tx and xmin = pg_current_xact_id()::xid;
    if not found then
        raise exception 'fencekit: the transaction that entered has ended' using errcode = 'ZF003';
    end if;
    insert into {{schema}}.operation (resource, key, request, result, tx, at)
    values (p_resource, convert_from(decode(p_key_hex, 'hex'), 'UTF8'), decode(p_request_hex, 'hex'),
            nullif(decode(p_result_hex, 'hex'), ''), p_tx, clock_timestamp());
end $$;

-- forget removes up to p_limit operations that have been kept for long enough, and
-- returns how many.
create function {{schema}}.forget(p_limit integer) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_count bigint;
begin
    delete from {{schema}}.operation
     where ctid = any (array(
        select o.ctid from {{schema}}.operation o
         where o.at < clock_timestamp() - (select once_retention from {{schema}}.setting where one)
         limit p_limit for update skip locked));
    get diagnostics v_count = row_count;
    return v_count;
end $$;

revoke all on procedure {{schema}}.keep(integer, bigint, text, text, text) from public;
revoke all on function {{schema}}.forget(integer) from public;

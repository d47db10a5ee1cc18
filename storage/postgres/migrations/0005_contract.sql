-- The protocol for one resource, with named parameters and plain types, for SQL from any language. docs/sql.md is
-- its contract. These functions run with the caller's rights, and leave every decision to the functions of
-- migration 2.

insert into {{schema}}.migration (version, name) values (5, 'contract');

-- contract_version is raised when a function below changes its parameters, result or meaning.
create function {{schema}}.contract_version() returns integer
language sql volatile set search_path = pg_catalog, pg_temp return 1;

-- random_tx returns a name for a transaction. It is no part of the contract.
create function {{schema}}.random_tx() returns bigint
language sql volatile set search_path = pg_catalog, pg_temp
return greatest(1, hashtextextended(gen_random_uuid()::text, 0) & 9223372036854775807);

-- claim_one claims a resource for a grant. It returns the fence's number and position.
create function {{schema}}.claim_one(
    resource text, epoch bigint, token bigint, holder text, lock_ms bigint default 2000, shard text default '',
    out fence integer, out seq bigint, out tx bigint
)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_state  text;
    v_detail text;
begin
    if num_nulls(resource, epoch, token, holder, lock_ms, shard) > 0 then
        raise exception 'fencekit: claim_one: an argument is null' using errcode = 'ZF007';
    end if;
    perform set_config('lock_timeout', lock_ms::text, true);
    select c.o_resource, c.o_seq, c.o_tx, c.o_state, c.o_detail into strict fence, seq, tx, v_state, v_detail
      from {{schema}}.claim(array[encode(convert_to(resource, 'UTF8'), 'hex')], array[epoch], array[token],
                            array[encode(convert_to(holder, 'UTF8'), 'hex')], {{schema}}.random_tx(), shard) c;
    if v_state is not null then
        perform set_config('client_encoding', 'UTF8', true); -- as in reject
        raise exception 'fencekit: token % of epoch % rejected for resource %', token, epoch, resource
            using errcode = v_state, detail = convert_from(decode(v_detail, 'hex'), 'UTF8');
    end if;
end $$;

-- evict_one ends sessions that still run transactions of earlier grants.
create function {{schema}}.evict_one(
    resource text, epoch bigint, token bigint, thorough boolean default false, wait_ms bigint default 1000,
    out evicted integer, out denied integer
)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if num_nulls(resource, epoch, token, thorough, wait_ms) > 0 then
        raise exception 'fencekit: evict_one: an argument is null' using errcode = 'ZF007';
    end if;
    select e.evicted, e.denied into strict evicted, denied
      from {{schema}}.evict(array[encode(convert_to(resource, 'UTF8'), 'hex')], array[epoch], array[token], wait_ms, thorough) e;
end $$;

-- begin_one is the begin check. It returns the server's id of the transaction (xid) and the name
-- that it will have in the history (own_tx).
create function {{schema}}.begin_one(
    fence integer, epoch bigint, token bigint,
    lock_ms bigint default 2000, statement_ms bigint default 5000, idle_ms bigint default 5000,
    network_ms bigint default 5000, check_ms bigint default 1000,
    out xid bigint, out own_tx bigint
)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if num_nulls(fence, epoch, token, lock_ms, statement_ms, idle_ms, network_ms, check_ms) > 0 then
        raise exception 'fencekit: begin_one: an argument is null' using errcode = 'ZF007';
    end if;
    if current_setting('transaction_read_only') = 'on' then
        raise exception 'fencekit: begin_one needs a transaction that is READ WRITE' using errcode = '25006';
    end if;
    xid := {{schema}}.begin_check(fence, epoch, token, lock_ms::text, statement_ms::text, idle_ms::text, network_ms::text, check_ms::text);
    own_tx := {{schema}}.random_tx();
end $$;

-- seal_one does all that is due between the last write and COMMIT: it runs deferred triggers, seals, and then runs
-- what they deferred again; see sealSQL in package postgres. It returns the fence's new position. Its search_path
-- isn't pinned, since triggers run in here: they have that of the session.
create function {{schema}}.seal_one(
    fence integer, epoch bigint, token bigint, holder text, seq bigint, tx bigint,
    xid bigint, own_tx bigint, ops json default null
) returns bigint
language plpgsql as $$
begin
    if pg_catalog.num_nulls(fence, epoch, token, holder, seq, tx, xid, own_tx) operator(pg_catalog.>) 0 then
        raise exception 'fencekit: seal_one: an argument is null' using errcode = 'ZF007';
    end if;
    if not {{schema}}.well_formed(ops) then
        raise exception 'fencekit: seal_one: ops is no array of operations, or has a text that the server can''t represent' using errcode = 'ZF007';
    end if;
    set constraints all immediate;
    perform {{schema}}.seal(array[fence], array[epoch], array[token], array[pg_catalog.encode(pg_catalog.convert_to(holder, 'UTF8'), 'hex')], array[seq], array[tx],
                            own_tx, array[coalesce(pg_catalog.encode(pg_catalog.convert_to(ops::pg_catalog.text, 'UTF8'), 'hex'), '')], xid::pg_catalog.text::pg_catalog.xid8);
    set constraints all immediate;
    set transaction read only;
    set constraints all immediate;
    execute 'close all';
    perform {{schema}}.before_commit();
    return seq operator(pg_catalog.+) 1;
end $$;

-- resolve_one returns 'applied', 'not applied', for ever, or 'unknown' if the history no longer tells.
create function {{schema}}.resolve_one(
    fence integer, epoch bigint, token bigint, holder text, seq bigint, tx bigint, own_tx bigint, lock_ms bigint default 2000
) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if lock_ms is null then -- resolve looks at the others
        raise exception 'fencekit: resolve_one: an argument is null' using errcode = 'ZF007';
    end if;
    perform set_config('lock_timeout', lock_ms::text, true);
    return {{schema}}.resolve(fence, epoch, token, holder, seq, tx, own_tx, {{schema}}.random_tx());
end $$;

-- record_one records a rejection: state is the SQLSTATE of its error, detail the DETAIL.
create function {{schema}}.record_one(
    resource text, epoch bigint, token bigint, holder text, stage text, state text, detail text
) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_current json := coalesce(detail, '{}')::json;
    v_reason  text := case state
        when 'ZF001' then 'stale'       when 'ZF002' then 'overtaken'    when 'ZF004' then 'went back'
        when 'ZF005' then 'epoch behind' when 'ZF006' then 'collision'    when 'ZF010' then 'token jump'
        when 'ZF011' then 'failed over'
    end;
begin
    if num_nulls(resource, epoch, token, holder, stage, state) > 0 then
        raise exception 'fencekit: record_one: an argument is null' using errcode = 'ZF007';
    end if;
    if v_reason is null or (stage in ('claim', 'begin', 'run', 'seal')) is not true then
        raise exception 'fencekit: record_one: % is no rejection, or % no stage', state, stage using errcode = 'ZF007';
    end if;
    perform {{schema}}.record_rejection(
        resource, v_reason, stage, epoch, token, holder, coalesce((v_current ->> 'epoch')::bigint, 0),
        coalesce((v_current ->> 'token')::bigint, 0), coalesce(v_current ->> 'holder', ''), (v_current ->> 'since')::timestamptz);
end $$;

revoke all on all functions in schema {{schema}} from public;

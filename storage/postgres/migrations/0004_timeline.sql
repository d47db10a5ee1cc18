-- Functions that know the marks of migration 3 and the server's timeline, with two
-- refusals more than migration 2 has:
--
--   ZF010 implausibly high token or epoch      ZF011 claimed before a failover

insert into {{schema}}.migration (version, name) values (4, 'timeline');

-- reject raises a refusal by the fence r, as UTF-8 whatever the session's encoding
-- is: a name that could not be converted would hide the refusal behind that.
create function {{schema}}.reject(p_state text, r {{schema}}.resource, p_token bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    perform set_config('client_encoding', 'UTF8', true);
    raise exception 'fencekit: token % refused for resource %: the fence is at token %', p_token, r.name, r.token
        using errcode = p_state,
              detail = json_build_object('resource', r.name, 'epoch', r.epoch, 'token', r.token, 'holder', r.holder, 'since', r.claimed_at,
                                         'age', extract(epoch from clock_timestamp() - r.claimed_at))::text;
end $$;

revoke all on function {{schema}}.reject(text, {{schema}}.resource, bigint) from public;

-- refuse raises the reason why a grant is not at the fence r at position p_seq.
create or replace function {{schema}}.refuse(
    r {{schema}}.resource, p_epoch bigint, p_token bigint, p_holder text, p_seq bigint
) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    perform {{schema}}.reject(case
        when (r.epoch, r.token) > (p_epoch, p_token) then 'ZF001'
        when (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then 'ZF006'
        when (r.epoch, r.token) = (p_epoch, p_token) and r.seq > p_seq then 'ZF002'
        else 'ZF004'
    end, r, p_token);
end $$;

-- claim raises the fence of a resource to a grant and returns where it stands. The
-- marks lie in one row for the whole database, which a claim reads without a lock
-- and writes only for a higher epoch or a token far above the mark, before it
-- locks any fence: so claims can't wait for each other in a circle. One that is
-- rolled back takes its mark back too.
create or replace function {{schema}}.claim(
    p_name text, p_epoch bigint, p_token bigint, p_holder text, p_tx bigint,
    out o_resource integer, out o_seq bigint, out o_tx bigint
)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    r          {{schema}}.resource;
    s          {{schema}}.setting;
    v_at       timestamptz := clock_timestamp();
    v_timeline integer := {{schema}}.timeline();
    v_hash     bytea;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: claim needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    if p_epoch is null or p_epoch not between 1 and 2147483647 or p_token is null or p_token not between 1 and 4611686018427387903
       or p_holder is null or octet_length(p_holder) not between 1 and 256 or p_tx is null
       or p_name is null or octet_length(p_name) not between 1 and 512 then
        raise exception 'fencekit: claim: argument out of bounds' using errcode = 'ZF007';
    end if;
    perform {{schema}}.durable();

    select * into strict s from {{schema}}.setting where one;
    if p_epoch > s.epoch + s.max_epoch_jump or p_epoch >= s.epoch and s.token > 0 and p_token > s.token + s.max_token_jump then
        raise exception 'fencekit: token % of epoch % is implausibly far above what the database has seen (token % of epoch %)',
                p_token, p_epoch, s.token, s.epoch
            using errcode = 'ZF010', detail = json_build_object('epoch', s.epoch, 'token', s.token)::text,
                  hint = format('if the lock service did issue it, the owner of the schema runs: update %s set epoch = %s, token = %s',
                                '{{schema}}.setting', p_epoch, p_token);
    end if;
    if s.epoch < p_epoch then
        update {{schema}}.setting set epoch = p_epoch, token = p_token where one and epoch < p_epoch;
        select * into strict s from {{schema}}.setting where one;
    end if;
    if s.epoch > p_epoch then
        raise exception 'fencekit: epoch % is behind the database''s epoch %', p_epoch, s.epoch
            using errcode = 'ZF005', detail = json_build_object('epoch', s.epoch)::text;
    end if;
    if s.token = 0 or p_token > s.token + s.max_token_jump / 1024 then
        -- Seldom, and never waiting: whoever has the row raises the mark as well.
        perform from {{schema}}.setting where one for no key update skip locked;
        if found then
            update {{schema}}.setting set token = p_token where one and epoch = p_epoch and token < p_token;
        end if;
    end if;

    r := {{schema}}.locked(p_name);
    if (r.epoch, r.token) > (p_epoch, p_token) or (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then
        perform {{schema}}.refuse(r, p_epoch, p_token, p_holder, 0);
    end if;
    if (r.epoch, r.token) = (p_epoch, p_token) and r.timeline <> v_timeline then
        perform {{schema}}.reject('ZF011', r, p_token);
    end if;
    if (r.epoch, r.token) < (p_epoch, p_token) then
        v_hash := {{schema}}.entry_hash(r.head, r.id, r.seq + 1, 'claim', p_epoch, p_token, p_holder, p_tx,
                                        pg_current_xact_id(), p_name, null, v_timeline, v_at);
        update {{schema}}.resource
           set epoch = p_epoch, token = p_token, holder = p_holder, seq = r.seq + 1, tx = p_tx,
               claim_seq = r.seq + 1, claimed_at = v_at, timeline = v_timeline, head = v_hash
         where id = r.id
        returning * into r;
        insert into {{schema}}.event (resource, seq, kind, epoch, token, holder, tx, xid, name, timeline, at, hash)
        values (r.id, r.seq, 'claim', p_epoch, p_token, p_holder, p_tx, pg_current_xact_id(), p_name, v_timeline, v_at, v_hash);
    end if;
    o_resource := r.id;
    o_seq := r.seq;
    o_tx := r.tx;
end $$;

-- head begins a guarded transaction. It bounds how long the transaction can
-- stand in the way of others, marks it as belonging to a grant by an advisory
-- lock, turns it away if the grant was superseded, or claimed on another timeline
-- of the server, and names it. The seal decides about the former; the latter can't
-- change while the transaction lives, so what is seen here is good until the end.
create or replace function {{schema}}.head(
    p_resource integer, p_epoch bigint, p_token bigint, p_tx bigint,
    p_lock_ms integer, p_statement_ms integer, p_idle_ms integer, p_network_ms integer, p_check_ms integer
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    r {{schema}}.resource;
begin
    perform set_config('lock_timeout', p_lock_ms::text, true),
            set_config('statement_timeout', p_statement_ms::text, true),
            set_config('idle_in_transaction_session_timeout', p_idle_ms::text, true),
            set_config('tcp_user_timeout', p_network_ms::text, true);
    if p_check_ms > 0 then
        perform set_config('client_connection_check_interval', p_check_ms::text, true);
    end if;
    perform {{schema}}.durable();
    perform pg_advisory_xact_lock_shared(p_resource, (p_token & 2147483647)::integer);
    select * into r from {{schema}}.resource where id = p_resource;
    if not found or (r.epoch, r.token) is distinct from (p_epoch, p_token) then
        perform {{schema}}.refuse(r, p_epoch, p_token, '', 0);
    end if;
    if r.timeline <> {{schema}}.timeline() then
        perform {{schema}}.reject('ZF011', r, p_token);
    end if;
    perform set_config('fencekit.tx', {{schema}}.mark(p_tx), true);
end $$;

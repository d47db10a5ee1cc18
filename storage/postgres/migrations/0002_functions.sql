-- The protocol. Each function is VOLATILE, so that every statement in it sees what has
-- committed by then, and has its search_path pinned. Rejections are errors, so that they
-- release their locks at once:
--
--   ZF001 superseded by a higher grant         ZF005 epoch behind the database's
--   ZF002 overtaken within the same grant      ZF006 token issued twice
--   ZF003 not the transaction that was checked  ZF007 argument out of bounds
--   ZF004 database went back                   ZF008 wrong isolation level
--   ZF009 tables that must not be changed      ZF010 implausibly high token or epoch
--   ZF011 claimed before a failover
--   ZF012 a batch's statement affected     ZF013 a batch's statement returned
--         another number of rows                 too much

insert into {{schema}}.migration (version, name) values (2, 'functions');

-- length_prefixed makes a hash input unambiguous: the length, then the bytes; NULL has length -1.
create function {{schema}}.length_prefixed(p bytea) returns bytea
language sql immutable parallel safe
return coalesce(int4send(octet_length(p)) || p, int4send(-1));

create function {{schema}}.entry_hash(
    p_prev bytea, p_resource integer, p_seq bigint, p_kind text, p_epoch bigint, p_token bigint, p_holder text,
    p_tx bigint, p_xid xid8, p_name text, p_ops text, p_timeline integer, p_at timestamptz
) returns bytea
language sql stable parallel safe
return sha256({{schema}}.length_prefixed(p_prev) || int4send(p_resource) || int8send(p_seq) || {{schema}}.length_prefixed(convert_to(p_kind, 'UTF8'))
    || int8send(p_epoch) || int8send(p_token) || {{schema}}.length_prefixed(convert_to(p_holder, 'UTF8')) || int8send(p_tx) || xid8send(p_xid)
    || {{schema}}.length_prefixed(convert_to(p_name, 'UTF8')) || {{schema}}.length_prefixed(convert_to(p_ops, 'UTF8')) || int4send(p_timeline) || timestamptz_send(p_at));

create function {{schema}}.timeline() returns integer
language sql volatile
return ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer;

-- raise_durability raises synchronous_commit to on for the present transaction, unless it is higher
-- already, and client_min_messages to warning: the server reports by a warning that the
-- wait for a standby was cancelled.
create function {{schema}}.raise_durability() returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    if current_setting('synchronous_commit') not in ('on', 'remote_apply') then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if current_setting('client_min_messages') = 'error' then
        perform set_config('client_min_messages', 'warning', true);
    end if;
end $$;

-- raise_rejection raises a rejection by the fence r, in UTF-8 regardless of the session's
-- encoding: a name that can't be converted would replace the rejection by an encoding
-- error.
create function {{schema}}.raise_rejection(p_state text, r {{schema}}.resource, p_token bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    perform set_config('client_encoding', 'UTF8', true);
    raise exception 'fencekit: token % rejected for resource %: the fence is at token %', p_token, r.name, r.token
        using errcode = p_state,
              detail = json_build_object('resource', r.name, 'epoch', r.epoch, 'token', r.token, 'holder', r.holder, 'since', r.claimed_at,
                                         'age', extract(epoch from clock_timestamp() - r.claimed_at))::text;
end $$;

-- reject raises the reason why a grant is not at the fence r at position p_seq.
create function {{schema}}.reject(
    r {{schema}}.resource, p_epoch bigint, p_token bigint, p_holder text, p_seq bigint
) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    perform {{schema}}.raise_rejection(case
        when (r.epoch, r.token) > (p_epoch, p_token) then 'ZF001'
        when (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then 'ZF006'
        when (r.epoch, r.token) = (p_epoch, p_token) and r.seq > p_seq then 'ZF002'
        else 'ZF004'
    end, r, p_token);
end $$;

-- append moves the fence on by one position and writes the entry of that position, if the
-- fence is exactly at p_seq and p_prev, and returns whether it was. Every move within a
-- grant is such a compare-and-move, so the later of two is rejected.
create function {{schema}}.append(
    p_resource integer, p_epoch bigint, p_token bigint, p_holder text, p_seq bigint, p_prev bigint,
    p_kind text, p_tx bigint, p_ops text
) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_at  timestamptz := clock_timestamp();
    v_xid xid8 := pg_current_xact_id();
    v     record;
begin
    update {{schema}}.resource
       set seq = p_seq + 1,
           tx = p_tx,
           hash = {{schema}}.entry_hash(hash, id, p_seq + 1, p_kind, p_epoch, p_token, p_holder, p_tx, v_xid, null, p_ops, timeline, v_at)
     where id = p_resource and epoch = p_epoch and token = p_token and holder = p_holder
       and seq = p_seq and tx = p_prev
    returning hash, timeline into v;
    if not found then
        return false;
    end if;
    insert into {{schema}}.history (resource, seq, kind, epoch, token, holder, tx, xid, ops, timeline, at, hash)
    values (p_resource, p_seq + 1, p_kind, p_epoch, p_token, p_holder, p_tx, v_xid, p_ops::json, v.timeline, v_at, v.hash);
    return true;
end $$;

-- lock_fence locks the fence of a resource and returns it. It creates the fence if there is
-- none, and rebuilds a deleted one from the last entry of its history.
create function {{schema}}.lock_fence(p_name text) returns {{schema}}.resource
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    r {{schema}}.resource;
    e {{schema}}.history;
begin
    select * into r from {{schema}}.resource where name = p_name for no key update;
    if found then
        return r;
    end if;
    select * into e from {{schema}}.history where name = p_name and kind = 'claim' order by seq desc limit 1;
    if found then
        select * into e from {{schema}}.history where resource = e.resource order by seq desc limit 1;
        insert into {{schema}}.resource (id, name, epoch, token, holder, seq, tx, claim_seq, claimed_at, timeline, hash)
        values (e.resource, p_name, e.epoch, e.token, e.holder, e.seq, e.tx, 0, e.at, e.timeline, e.hash)
        on conflict do nothing;
    else
        insert into {{schema}}.resource (name, epoch, token, holder, seq, tx, claim_seq, claimed_at, timeline, hash)
        values (p_name, 0, 0, '', 0, 0, 0, clock_timestamp(), 0, sha256(convert_to('fencekit:' || p_name, 'UTF8')))
        on conflict do nothing;
    end if;
    select * into strict r from {{schema}}.resource where name = p_name for no key update;
    return r;
end $$;

-- jump_hint says what to do about a claim that is far above the database's mark. The
-- statement to run comes last, after its consequences.
create function {{schema}}.jump_hint(p_epoch bigint, p_token bigint, s {{schema}}.setting) returns text
language sql volatile set search_path = pg_catalog, pg_temp
return case when p_epoch > s.epoch + s.max_epoch_jump then
    format('if the lock service''s epoch key (etcd: PREFIX/epoch, PREFIX is etcd.Config.Prefix) was set to %s by mistake: etcdctl put PREFIX/epoch %s; '
           'running processes go on. If it was meant, lower epochs will be rejected for good, and '
           'the owner of the schema runs: update %s set epoch = %s, token = 0', p_epoch, s.epoch + 1, '{{schema}}.setting', p_epoch)
else
    format('once this token has claimed, every lower one is rejected for its resource, for good. A token of a test''s locker, or of another lock '
           'service, does not belong in this database. Only if this lock service issued it and goes on from there, as after a restore '
           'with --bump-revision, the owner of the schema runs: update %s set epoch = %s, token = %s', '{{schema}}.setting', p_epoch, p_token)
end;

-- claim raises the fence of a resource to a grant and returns its position. The marks are
-- in one row for the whole database, which a claim reads without a lock and writes only for
-- a higher epoch or a token far above the mark, before it locks any fence: so claims can't
-- deadlock. Rolling a claim back also rolls its mark back.
create function {{schema}}.claim(
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
    perform {{schema}}.raise_durability();

    select * into strict s from {{schema}}.setting where one;
    if p_epoch > s.epoch + s.max_epoch_jump or p_epoch >= s.epoch and s.token > 0 and p_token > s.token + s.max_token_jump then
        raise exception 'fencekit: token % of epoch % is implausibly far above the database''s mark (token % of epoch %)',
                p_token, p_epoch, s.token, s.epoch
            using errcode = 'ZF010', detail = json_build_object('epoch', s.epoch, 'token', s.token)::text,
                  hint = {{schema}}.jump_hint(p_epoch, p_token, s);
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
        -- Rare. SKIP LOCKED: the transaction that holds the row raises the mark too.
        perform from {{schema}}.setting where one for no key update skip locked;
        if found then
            update {{schema}}.setting set token = p_token where one and epoch = p_epoch and token < p_token;
        end if;
    end if;

    r := {{schema}}.lock_fence(p_name);
    if (r.epoch, r.token) > (p_epoch, p_token) or (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then
        perform {{schema}}.reject(r, p_epoch, p_token, p_holder, 0);
    end if;
    if (r.epoch, r.token) = (p_epoch, p_token) and r.timeline <> v_timeline then
        perform {{schema}}.raise_rejection('ZF011', r, p_token);
    end if;
    if (r.epoch, r.token) < (p_epoch, p_token) then
        v_hash := {{schema}}.entry_hash(r.hash, r.id, r.seq + 1, 'claim', p_epoch, p_token, p_holder, p_tx,
                                        pg_current_xact_id(), p_name, null, v_timeline, v_at);
        update {{schema}}.resource
           set epoch = p_epoch, token = p_token, holder = p_holder, seq = r.seq + 1, tx = p_tx,
               claim_seq = r.seq + 1, claimed_at = v_at, timeline = v_timeline, hash = v_hash
         where id = r.id
        returning * into r;
        insert into {{schema}}.history (resource, seq, kind, epoch, token, holder, tx, xid, name, timeline, at, hash)
        values (r.id, r.seq, 'claim', p_epoch, p_token, p_holder, p_tx, pg_current_xact_id(), p_name, v_timeline, v_at, v_hash);
    end if;
    o_resource := r.id;
    o_seq := r.seq;
    o_tx := r.tx;
end $$;

-- mark proves that the present transaction has passed the begin check under a grant as
-- p_tx. A copy is invalid in any other transaction, and making one takes the secret.
create function {{schema}}.mark(p_resource integer, p_epoch bigint, p_token bigint, p_tx bigint) returns text
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_secret bytea;
begin
    -- Never as a parameter of a query: a logged plan would show it.
    select value into v_secret from {{schema}}.secret;
    return encode(sha256(v_secret || int4send(p_resource) || int8send(p_epoch) || int8send(p_token) || int8send(p_tx)
                         || xid8send(pg_current_xact_id())), 'hex');
end $$;

-- require_mark requires that mark of the present transaction: the setting fencekit.tx holds
-- those of its begin checks.
create function {{schema}}.require_mark(p_resource integer, p_epoch bigint, p_token bigint, p_tx bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    if ({{schema}}.mark(p_resource, p_epoch, p_token, p_tx) = any (string_to_array(current_setting('fencekit.tx', true), ' '))) is not true then
        raise exception 'fencekit: the transaction that passed the begin check has ended' using errcode = 'ZF003';
    end if;
end $$;

-- begin_check begins a guarded transaction. It bounds how long the transaction can block
-- others, takes an advisory lock that shows its grant, rejects the transaction if the grant
-- was superseded, or claimed on another timeline of the server, and leaves its mark. Only
-- the seal decides finally whether the grant was superseded. The timeline can't change
-- while the transaction lives, so this check of it is final.
create function {{schema}}.begin_check(
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
    perform {{schema}}.raise_durability();
    -- Without waiting: any role can take the key. Then this transaction can't be evicted,
    -- and nothing else is lost.
    perform pg_try_advisory_xact_lock_shared(p_resource, (p_token & 2147483647)::integer);
    select * into r from {{schema}}.resource where id = p_resource;
    if not found or (r.epoch, r.token) is distinct from (p_epoch, p_token) then
        perform {{schema}}.reject(r, p_epoch, p_token, '', 0);
    end if;
    if r.timeline <> {{schema}}.timeline() then
        perform {{schema}}.raise_rejection('ZF011', r, p_token);
    end if;
    perform set_config('fencekit.tx', concat_ws(' ', current_setting('fencekit.tx', true), {{schema}}.mark(p_resource, p_epoch, p_token, p_tx)), true);
end $$;

-- seal lets the transaction that passed the begin check commit, if the fence is where its
-- grant left it (G2). Text arrives in hexadecimal, so that no setting of the session can
-- change its meaning. It leaves a mark for keep, with epoch 0, which no begin check uses.
create procedure {{schema}}.seal(
    p_resource integer, p_epoch bigint, p_token bigint, p_holder_hex text, p_seq bigint, p_prev bigint, p_tx bigint, p_ops_hex text
)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_holder text := convert_from(decode(p_holder_hex, 'hex'), 'UTF8');
    r        {{schema}}.resource;
begin
    perform {{schema}}.require_mark(p_resource, p_epoch, p_token, p_tx);
    if not {{schema}}.append(p_resource, p_epoch, p_token, v_holder, p_seq, p_prev, 'write', p_tx,
                             convert_from(decode(p_ops_hex, 'hex'), 'UTF8')) then
        select * into r from {{schema}}.resource where id = p_resource;
        perform {{schema}}.reject(r, p_epoch, p_token, v_holder, p_seq);
    end if;
    perform set_config('fencekit.tx', concat_ws(' ', current_setting('fencekit.tx', true), {{schema}}.mark(p_resource, 0, 0, p_tx)), true);
end $$;

-- before_commit is the last statement before a guarded COMMIT. Deferred triggers may have changed
-- the settings that decide what COMMIT waits for.
create procedure {{schema}}.before_commit()
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    perform {{schema}}.raise_durability();
end $$;

-- resolve decides the outcome of a transaction that was to move the fence on from p_seq. It waits for that
-- transaction's seal if it is under way. Then it takes the position itself if it is still
-- free, or reads whether that transaction has it. It always writes, so its answer is as
-- durable as a commit.
create function {{schema}}.resolve(
    p_resource integer, p_epoch bigint, p_token bigint, p_holder text, p_seq bigint, p_prev bigint, p_tx bigint, p_void bigint
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_seq  bigint;
    v_tx   bigint;
    v_kind text;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: resolve needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    perform {{schema}}.raise_durability();
    select seq into v_seq from {{schema}}.resource where id = p_resource for no key update;
    if not found then
        return 'unknown';
    end if;
    if {{schema}}.append(p_resource, p_epoch, p_token, p_holder, p_seq, p_prev, 'void', p_void, null) then
        return 'not applied';
    end if;
    select tx, kind into v_tx, v_kind from {{schema}}.history where resource = p_resource and seq = p_seq + 1;
    return case
        when v_tx = p_tx and v_kind = 'write' then 'applied'
        when v_tx is not null or v_seq <= p_seq then 'not applied'
        else 'unknown' -- the entry was pruned
    end;
end $$;

-- stale_backends lists the backends that hold the begin check's lock of a claim earlier
-- than (p_epoch, p_token). A late caller must not disturb later claims.
create function {{schema}}.stale_backends(p_name text, p_epoch bigint, p_token bigint) returns setof integer
language sql volatile set search_path = pg_catalog, pg_temp set jit = off
begin atomic
    select l.pid
      from {{schema}}.resource r
      join pg_locks l
        on l.locktype = 'advisory' and l.objsubid = 2 and l.mode = 'ShareLock' and l.classid::bigint = r.id
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
     where r.name = p_name and l.pid is not null and l.pid <> pg_backend_pid()
       and exists (select from (select c.epoch, c.token from {{schema}}.history c
                                 where c.name = p_name and c.kind = 'claim' order by c.seq desc limit 1000) c
                    where (c.epoch, c.token) < (p_epoch, p_token) and (c.token & 2147483647) = l.objid::bigint)
       and (p_token & 2147483647) <> l.objid::bigint;
end;

-- evict terminates those backends and waits up to p_wait_ms for each to be gone. A
-- terminated transaction may have committed: only the claim decides. It runs with the
-- caller's rights, since pg_terminate_backend checks those.
create function {{schema}}.evict(
    p_name text, p_epoch bigint, p_token bigint, p_wait_ms bigint, out evicted integer, out denied integer
)
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_pid integer;
begin
    evicted := 0;
    denied := 0;
    for v_pid in select {{schema}}.stale_backends(p_name, p_epoch, p_token) loop
        begin
            -- List again and terminate in one statement: the backend may have started
            -- another transaction.
            perform pg_terminate_backend(s, p_wait_ms) from {{schema}}.stale_backends(p_name, p_epoch, p_token) s where s = v_pid;
            if found then
                evicted := evicted + 1;
            end if;
        exception when insufficient_privilege then
            denied := denied + 1;
        end;
    end loop;
end $$;

-- session_state is a digest of the session state that outlives a transaction and would
-- change the meaning of the next user's statements: settings, temporary objects, channels
-- that it listens on, cursors WITH HOLD. Its search_path isn't pinned, since that is one of
-- the settings. Settings that only change plans are left out, and so are those that
-- extensions and users define, which can't be listed cheaply.
create function {{schema}}.session_state() returns bigint
language plpgsql as $$
begin
    return pg_catalog.hashtextextended(pg_catalog.concat_ws(pg_catalog.chr(10),
        pg_catalog.current_setting('search_path'), pg_catalog.current_setting('role'), pg_catalog.current_setting('session_authorization'),
        pg_catalog.current_setting('row_security'), pg_catalog.current_setting('session_replication_role'),
        pg_catalog.current_setting('default_transaction_isolation'), pg_catalog.current_setting('default_transaction_read_only'),
        pg_catalog.current_setting('default_transaction_deferrable'), pg_catalog.current_setting('synchronous_commit'),
        pg_catalog.current_setting('statement_timeout'), pg_catalog.current_setting('lock_timeout'),
        pg_catalog.current_setting('idle_in_transaction_session_timeout'), pg_catalog.current_setting('idle_session_timeout'),
        pg_catalog.current_setting('transaction_timeout', true), pg_catalog.current_setting('client_connection_check_interval'),
        pg_catalog.current_setting('tcp_user_timeout'),
        pg_catalog.current_setting('client_encoding'), pg_catalog.current_setting('client_min_messages'),
        pg_catalog.current_setting('DateStyle'), pg_catalog.current_setting('IntervalStyle'), pg_catalog.current_setting('TimeZone'),
        pg_catalog.current_setting('timezone_abbreviations'), pg_catalog.current_setting('bytea_output'),
        pg_catalog.current_setting('extra_float_digits'), pg_catalog.current_setting('standard_conforming_strings'),
        pg_catalog.current_setting('backslash_quote'), pg_catalog.current_setting('transform_null_equals'),
        pg_catalog.current_setting('array_nulls'), pg_catalog.current_setting('quote_all_identifiers'),
        pg_catalog.current_setting('xmlbinary'), pg_catalog.current_setting('xmloption'),
        pg_catalog.current_setting('lc_messages'), pg_catalog.current_setting('lc_monetary'), pg_catalog.current_setting('lc_numeric'),
        pg_catalog.current_setting('lc_time'), pg_catalog.current_setting('default_text_search_config'),
        pg_catalog.current_setting('check_function_bodies'), pg_catalog.current_setting('default_table_access_method'),
        pg_catalog.current_setting('default_tablespace'), pg_catalog.current_setting('temp_tablespaces'),
        case when pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0 then (
            select pg_catalog.string_agg(d.objid::pg_catalog.text, ' ' order by d.classid, d.objid) from pg_catalog.pg_depend d
             where d.refclassid operator(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass
               and d.refobjid operator(pg_catalog.=) pg_catalog.pg_my_temp_schema()) end,
        (select pg_catalog.string_agg(c, ' ' order by c) from pg_catalog.pg_listening_channels() c),
        (select pg_catalog.string_agg(c.name, ' ' order by c.name) from pg_catalog.pg_cursor() c where c.is_holdable)), 0);
end $$;

-- leave is called on the connection of a guarded transaction after that has ended, before
-- anything else uses the session. It ends the session if an eviction may have listed its
-- backend, since the signal may still be on its way; or if the session has changed
-- (p_unchanged, see session_state). Eviction lists transactions whose grant was superseded
-- while they ran: if the grant still has the fence now, no eviction has listed this one. It
-- runs with the caller's rights, since pg_terminate_backend checks those.
create function {{schema}}.leave(p_resource integer, p_epoch bigint, p_token bigint, p_unchanged boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    perform pg_advisory_unlock_all();
    if not p_unchanged
       or not exists (select from {{schema}}.resource where id = p_resource and epoch = p_epoch and token = p_token) then
        perform pg_terminate_backend(pg_backend_pid());
    end if;
end $$;

-- must_affect returns p_count, the rows of a statement of a batch, if it is p_want or p_want
-- is null. The error's detail is p_count.
create function {{schema}}.must_affect(p_count bigint, p_want bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    if p_count <> p_want then
        raise exception 'fencekit: a statement of the batch affected % rows, must affect %', p_count, p_want
            using errcode = 'ZF012', detail = p_count::text;
    end if;
    return p_count;
end $$;

-- must_fit returns p_rows, what a statement of a batch returned, if it has at most p_limit
-- bytes.
create function {{schema}}.must_fit(p_rows text, p_limit integer) returns text
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    if octet_length(p_rows) > p_limit then
        raise exception 'fencekit: a statement of the batch returned % bytes, at most % are allowed', octet_length(p_rows), p_limit
            using errcode = 'ZF013';
    end if;
    return p_rows;
end $$;

-- record_rejection counts a rejection. It never touches the fence.
create function {{schema}}.record_rejection(
    p_resource text, p_reason text, p_stage text, p_epoch bigint, p_token bigint, p_holder text,
    p_current_epoch bigint, p_current_token bigint, p_current_holder text, p_current_since timestamptz
) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
    insert into {{schema}}.rejection as f (resource, reason, stage, epoch, token, holder, current_epoch, current_token, current_holder, current_since)
    values (p_resource, p_reason, p_stage, p_epoch, p_token, p_holder, p_current_epoch, p_current_token, p_current_holder, p_current_since)
    on conflict on constraint rejection_kind do update set count = f.count + 1, last_at = clock_timestamp();
end;

-- keep stores the key and result of an operation, in the transaction p_tx, whose seal has
-- moved the resource's fence: a key is never kept without a move (see
-- storage.Store.Recall). It requires the seal's mark instead of reading the history, which
-- would make operations on different resources conflict under SERIALIZABLE.
create procedure {{schema}}.keep(p_resource integer, p_tx bigint, p_key_hex text, p_request_hex text, p_result_hex text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    perform {{schema}}.require_mark(p_resource, 0, 0, p_tx);
    insert into {{schema}}.operation (resource, key, request, result, tx, at)
    values (p_resource, convert_from(decode(p_key_hex, 'hex'), 'UTF8'), decode(p_request_hex, 'hex'),
            nullif(decode(p_result_hex, 'hex'), ''), p_tx,
            greatest(clock_timestamp(), (select seen from {{schema}}.forget_clock where one)));
end $$;

-- forget removes up to p_limit operations that were kept for the retention, by a clock that
-- went steadily for as long: after a clock that was set forward all of them could run
-- again. It returns their number, and the clock's last reading if the clock has jumped
-- since.
create function {{schema}}.forget(p_limit integer, out o_count bigint, out o_jumped_from timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    c           {{schema}}.forget_clock;
    v_now       timestamptz := clock_timestamp();
    v_retention interval;
begin
    o_count := 0;
    select * into c from {{schema}}.forget_clock where one for no key update skip locked;
    if not found then
        return; -- another call is running
    end if;
    select once_retention into strict v_retention from {{schema}}.setting where one;
    if (v_now between c.seen and c.seen + v_retention / 4) is not true then
        update {{schema}}.forget_clock set seen = v_now, steady = v_now where one;
        o_jumped_from := c.seen;
        return;
    end if;
    update {{schema}}.forget_clock set seen = v_now where one;
    if c.steady > v_now - v_retention then
        return;
    end if;
    delete from {{schema}}.operation
     where ctid = any (array(
        select o.ctid from {{schema}}.operation o where o.at < v_now - v_retention limit p_limit for update skip locked));
    get diagnostics o_count = row_count;
end $$;

-- repair moves each fence that is behind its history, as after a restore of a part of the
-- tables, to the end of its history, and returns their names. Only the owner can call it.
create function {{schema}}.repair() returns setof text
language sql volatile set search_path = pg_catalog, pg_temp
begin atomic
    update {{schema}}.resource r
       set epoch = e.epoch, token = e.token, holder = e.holder, seq = e.seq, tx = e.tx,
           claim_seq = 0, claimed_at = e.at, timeline = e.timeline, hash = e.hash
      from {{schema}}.resource f
     cross join lateral (select * from {{schema}}.history h where h.resource = f.id order by h.seq desc limit 1) e
     where r.id = f.id and e.seq > r.seq and (e.epoch, e.token) >= (r.epoch, r.token)
    returning r.name;
end;

revoke all on all functions in schema {{schema}} from public;
revoke all on all procedures in schema {{schema}} from public;

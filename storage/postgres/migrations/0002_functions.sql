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
--   ZF014 another shard
--   ZF015 an unguarded write to a protected table
--   ZF016 a standby                        ZF017 needs create_here
--   ZF018 owned or awaited, or an older transaction still runs

insert into {{schema}}.migration (version, name) values (2, 'functions');

-- raise_durability raises synchronous_commit to on, unless it is higher, and client_min_messages to warning: the
-- server reports by a warning that the wait for a standby was cancelled.
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

-- refuse_standby fails on a standby, whose fences may be old.
create function {{schema}}.refuse_standby() returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    if pg_is_in_recovery() then
        raise exception 'fencekit: the server is a standby' using errcode = 'ZF016';
    end if;
end $$;

-- timeline returns the server's timeline, by which a failover is noticed; 0 if the server doesn't tell it. Where a
-- fence has one, the caller asks the server itself, without a look at the setting; like timeline, that fails on a
-- standby.
create function {{schema}}.timeline() returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    if (select tells_timeline from {{schema}}.setting where one) then
        return ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer;
    end if;
    perform {{schema}}.refuse_standby();
    return 0;
end $$;

-- note_timeline notes and returns whether the server tells its timeline. Amazon Aurora raises an error. A dump may
-- come from another kind of server: a fence claimed where the timeline was unknown is then rejected as failed over,
-- until the next claim.
create function {{schema}}.note_timeline() returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_tells boolean := true;
    v_name  text;
begin
    begin
        v_name := pg_walfile_name(pg_current_wal_lsn());
    exception when others then
        if pg_is_in_recovery() then
            raise;
        end if;
        v_tells := false;
    end;
    if v_tells <> (select tells_timeline from {{schema}}.setting where one) then
        update {{schema}}.setting set tells_timeline = v_tells where one;
    end if;
    return v_tells;
end $$;

-- detail says which grant has the fence r.
create function {{schema}}.detail(r {{schema}}.resource) returns json
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    return json_build_object('resource', r.name, 'epoch', r.epoch, 'token', r.token, 'holder', r.holder, 'since', r.claimed_at,
                             'age', extract(epoch from clock_timestamp() - r.claimed_at));
end $$;

-- reason says why a grant is not at position p_seq of the fence r.
create function {{schema}}.reason(r {{schema}}.resource, p_epoch bigint, p_token bigint, p_holder text, p_seq bigint) returns text
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    return case
        when (r.epoch, r.token) > (p_epoch, p_token) then 'ZF001'
        when (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then 'ZF006'
        when (r.epoch, r.token) = (p_epoch, p_token) and r.seq > p_seq then 'ZF002'
        else 'ZF004'
    end;
end $$;

-- reject raises a rejection, by default the reason why a grant is not at position p_seq of the fence. It is in
-- UTF-8 whatever the session's encoding is: a name that can't be converted would turn the rejection into an
-- encoding error.
create function {{schema}}.reject(
    p_state text, p_resource integer, p_epoch bigint, p_token bigint, p_holder text, p_seq bigint
) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    r {{schema}}.resource;
begin
    perform {{schema}}.refuse_standby();
    select * into r from {{schema}}.resource where id = p_resource;
    if not found then
        if exists (select from {{schema}}.queue q where q.retired > 0 and (q.epoch, q.token) >= (p_epoch, p_token)) then
            raise exception 'fencekit: token % rejected for the resource with the number %: it was retired', p_token, p_resource
                using detail = json_build_object('number', p_resource, 'epoch', p_epoch, 'token', p_token, 'holder', 'retired')::text, errcode = 'ZF001';
        end if;
        raise exception 'fencekit: there is no fence with the number %: the database went back, or the number is not what claim_one returned', p_resource
            using detail = {{schema}}.detail(r)::text, errcode = 'ZF004';
    end if;
    perform set_config('client_encoding', 'UTF8', true);
    raise exception 'fencekit: token % rejected for resource %: the fence is at token %', p_token, r.name, r.token
        using detail = {{schema}}.detail(r)::text,
              errcode = coalesce(p_state, {{schema}}.reason(r, p_epoch, p_token, p_holder, p_seq));
end $$;

-- name_key is the advisory lock of a resource's name. Transactions that make their own claims hold it, also on a
-- resource that has no fence yet. It is negative: those of fences are not. The planner puts its text in place of calls.
create function {{schema}}.name_key(p_name text) returns integer
language sql volatile
return hashtext('{{schema}}.' || p_name) | -2147483648;

-- create_fence makes a missing fence, or rebuilds a deleted one from the last entry of its history, and returns its
-- number.
create function {{schema}}.create_fence(p_name text) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    c    {{schema}}.history;
    e    {{schema}}.history;
    v_id integer;
begin
    select * into c from {{schema}}.history where name = p_name and kind = 'c' order by seq desc limit 1;
    if found then
        select * into e from {{schema}}.history where resource = c.resource order by seq desc limit 1;
        insert into {{schema}}.resource (id, timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
        values (c.resource, c.timeline, c.epoch, c.token, 0, c.seq, c.at, e.seq, e.tx, e.hash, c.holder, p_name)
        on conflict do nothing;
    else
        insert into {{schema}}.resource (timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
        values (0, 0, 0, 0, 0, clock_timestamp(), 0, 0, sha256(convert_to('fencekit:' || p_name, 'UTF8')), '', p_name)
        on conflict do nothing;
    end if;
    select id into strict v_id from {{schema}}.resource where name = p_name;
    return v_id;
end $$;

-- retired returns the highest grant that was retired (see retire), as the fence of a resource of such a queue, if
-- that isn't lower than a grant; else null. A fence that has not been claimed yet may have been made anew.
create function {{schema}}.retired(p_name text, p_epoch bigint, p_token bigint) returns {{schema}}.queue
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    q {{schema}}.queue;
begin
    select * into q from {{schema}}.queue f where starts_with(p_name, f.name || '/') and (f.epoch, f.token) >= (p_epoch, p_token)
     order by f.epoch desc, f.token desc limit 1;
    return q;
end $$;

-- jump_hint says what to do about a claim far above the database's mark.
create function {{schema}}.jump_hint(p_epoch bigint, p_token bigint, s {{schema}}.setting) returns text
language sql volatile set search_path = pg_catalog, pg_temp
return case when p_epoch > s.epoch + s.max_epoch_jump then
    format('if the lock service''s epoch %1$s is a mistake, set it back to %2$s. If it is right, the owner of the schema runs: '
           'update %3$s set epoch = %1$s, token = 0; lower epochs will be rejected for good', p_epoch, s.epoch, '{{schema}}.setting')
else
    format('once this token has claimed, every lower one is rejected for its resource, until the epoch is raised. A token of a test''s locker, or of another lock '
           'service, does not belong in this database. Only if this lock service issued it and goes on from there, as after a restore '
           'with --bump-revision, the owner of the schema runs: update %s set epoch = %s, token = %s', '{{schema}}.setting', p_epoch, p_token)
end;

-- pass_marks returns null if a claim may pass the database's marks, which it raises if need be, or why not. It
-- waits only for another claim of a higher epoch.
create function {{schema}}.pass_marks(p_epoch bigint, p_token bigint, out o_state text, out o_detail json)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    s {{schema}}.setting;
begin
    select * into strict s from {{schema}}.setting where one;
    if p_epoch > s.epoch + s.max_epoch_jump or p_epoch >= s.epoch and s.token > 0 and p_token > s.token + s.max_token_jump then
        o_state := 'ZF010';
        o_detail := json_build_object('epoch', s.epoch, 'token', s.token, 'hint', {{schema}}.jump_hint(p_epoch, p_token, s));
        return;
    end if;
    if s.epoch < p_epoch then
        update {{schema}}.setting set epoch = p_epoch, token = p_token where one and epoch < p_epoch;
        select * into strict s from {{schema}}.setting where one;
    end if;
    if s.epoch > p_epoch then
        o_state := 'ZF005';
        o_detail := json_build_object('epoch', s.epoch);
        return;
    end if;
    if s.token = 0 or p_token > s.token + s.max_token_jump / 1024 then
        -- Rare. SKIP LOCKED: the transaction that holds the row raises the mark too.
        perform from {{schema}}.setting where one for no key update skip locked; -- mutant: claim-waits-for-the-mark
        if found then
            update {{schema}}.setting set token = p_token where one and epoch = p_epoch and token < p_token;
        end if;
    end if;
end $$;

-- check_shard fails unless the database is the shard p_shard; '' stands for none.
create function {{schema}}.check_shard(p_shard text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_shard text;
begin
    select coalesce(shard, '') into strict v_shard from {{schema}}.setting where one;
    if (v_shard = p_shard) is not true then
        raise exception 'fencekit: the database is shard "%", the caller expects shard "%"', v_shard, p_shard using errcode = 'ZF014';
    end if;
end $$;

-- marks returns the highest epoch that the database has seen, its mark of tokens, and the highest epoch that may claim.
create function {{schema}}.marks(out o_epoch bigint, out o_token bigint, out o_reach bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    select epoch, token, epoch + max_epoch_jump into strict o_epoch, o_token, o_reach from {{schema}}.setting where one;
end $$;

-- lost reports whether a fence seen at p_seq, moved there by p_tx, has lost that move. A pruned move isn't lost, nor one
-- of a queue's resource, which may have been retired since.
-- Positions have no gaps, so what has this move has all before it.
create function {{schema}}.lost(p_resource integer, p_seq bigint, p_tx bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_tx bigint;
begin
    select tx into v_tx from {{schema}}.history where resource = p_resource and seq = p_seq;
    if found and v_tx = p_tx then
        return false;
    end if;
    return (v_tx is not null or not exists (select from {{schema}}.checkpoint where resource = p_resource and first > p_seq))
       and not exists (select from {{schema}}.queue q join {{schema}}.resource r on starts_with(r.name, q.name || '/') where r.id = p_resource and q.retired > 0);
end $$;

-- claim raises the fences of resources, whose names come in ascending order, to grants. It returns a row for each:
-- its place among the names, and the fence's number and position or, if the grant is rejected, o_state and
-- o_detail, in hexadecimal. A rejection doesn't keep the others from claiming; a wrong shard fails all. The
-- database stays that shard until the claim commits: before a claim reads the shard, it takes the lock that its
-- writes need anyway, and protect_shard takes one that conflicts.
--
-- p_seqs and p_txs are positions at which the claimants have seen the fences, 0 for none. If a fence has lost one,
-- the database went back.
--
-- Claims can't deadlock. A claim reads the marks, which are one row for the whole database, without a lock, and
-- writes them only for a higher epoch or a token far above the mark, before it touches any fence. Then it creates
-- missing fences, in the order of their names, and only then locks existing ones, in the order of their numbers, as
-- seals do. A claim that creates may wait for others, but none that holds the lock of a fence waits for it. Rolling
-- a claim back also rolls its mark back. A grant that its fence rejects may have raised the mark, but no further
-- than the grant that has the fence.
create function {{schema}}.claim(p_names text[], p_epochs bigint[], p_tokens bigint[], p_holders text[], p_tx bigint, p_shard text default '',
                                p_seqs bigint[] default null, p_txs bigint[] default null)
returns table (o_place integer, o_resource integer, o_seq bigint, o_tx bigint, o_state text, o_detail text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    n          integer := cardinality(p_names);
    v_names    text[];
    v_holder   text;
    v_id       integer;
    v_ids      integer[];
    v_at       timestamptz;
    v_timeline integer := {{schema}}.timeline();
    v_state    text;
    v_detail   json;
    r          {{schema}}.resource;
    q          {{schema}}.queue;
    s          {{schema}}.setting;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: claim needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    if (n > 0 and cardinality(p_epochs) = n and cardinality(p_tokens) = n and cardinality(p_holders) = n and p_tx is not null
        and (p_seqs is null and p_txs is null or cardinality(p_seqs) = n and cardinality(p_txs) = n)) is not true then
        raise exception 'fencekit: claim: arrays of different lengths, or null' using errcode = 'ZF007';
    end if;
    for i in 1..n loop
        v_names[i] := convert_from(decode(p_names[i], 'hex'), 'UTF8');
        if (p_epochs[i] between 1 and 2147483647 and p_tokens[i] between 1 and 4611686018427387903
            and octet_length(p_holders[i]) between 2 and 512 and octet_length(v_names[i]) between 1 and 512
            and (p_seqs is null or num_nulls(p_seqs[i], p_txs[i]) = 0)
            -- Control characters, of ASCII and U+0080 to U+009F, forge lines.
            and encode(decode(p_names[i] || p_holders[i], 'hex'), 'hex') !~ '^(..)*([01].|7f|c2[89].)'
            and (i = 1 or v_names[i] collate "C" > v_names[i - 1] collate "C")) is not true then
            raise exception 'fencekit: claim: argument out of bounds, or names not in ascending order' using errcode = 'ZF007';
        end if;
    end loop;
    perform {{schema}}.raise_durability();

    lock table {{schema}}.resource in row exclusive mode;
    select * into strict s from {{schema}}.setting where one;
    if (coalesce(s.shard, '') = p_shard) is not true then
        perform {{schema}}.check_shard(p_shard);
    end if;
    for i in 1..n loop
        if (p_epochs[i] = s.epoch and s.token > 0 and p_tokens[i] <= s.token + s.max_token_jump / 1024) is not true then
            select m.o_state, m.o_detail into v_state, v_detail from {{schema}}.pass_marks(p_epochs[i], p_tokens[i]) m;
            if v_state is not null then
                v_names[i] := null;
                o_place := i;
                o_state := v_state;
                o_detail := encode(convert_to(v_detail::text, 'UTF8'), 'hex');
                return next;
            end if;
            select * into strict s from {{schema}}.setting where one;
        end if;
    end loop;

    v_ids := array_fill(null::integer, array[n]); -- places count from 1 also if the first has no fence
    for i in 1..n loop
        if v_names[i] is not null then
            select id into v_id from {{schema}}.resource where name = v_names[i];
            if not found then
                v_id := {{schema}}.create_fence(v_names[i]);
            end if;
            v_ids[i] := v_id;
        end if;
    end loop;

    for o_place, o_resource in select u.place, u.id from unnest(v_ids) with ordinality u (id, place) where u.id is not null order by u.id loop
        o_state := null;
        o_detail := null;
        v_holder := convert_from(decode(p_holders[o_place], 'hex'), 'UTF8');
        if p_seqs[o_place] > 0 and {{schema}}.lost(o_resource, p_seqs[o_place], p_txs[o_place]) then
            select * into r from {{schema}}.resource where id = o_resource;
            if not found then
                raise exception 'fencekit: the resource was just retired' using errcode = '40001';
            end if;
            o_state := {{schema}}.reason(r, p_epochs[o_place], p_tokens[o_place], v_holder, 9223372036854775807);
            o_detail := encode(convert_to({{schema}}.detail(r)::text, 'UTF8'), 'hex');
            return next;
            continue;
        end if;
        v_at := clock_timestamp();
        with moved as (
            update {{schema}}.resource f
               set timeline = v_timeline, epoch = p_epochs[o_place], token = p_tokens[o_place], prev_token = f.token,
                   claim_seq = f.seq + 1, claimed_at = v_at, seq = f.seq + 1, tx = p_tx, sealed = '0', holder = v_holder,
                   hash = sha256(f.hash || int4send(f.id) || int8send(f.seq + 1) || 'c' || int8send(f.seq + 1) || int8send(p_tx)
                                 || xid8send(pg_current_xact_id()) || timestamptz_send(v_at)
                                 || int8send(p_epochs[o_place]) || int8send(p_tokens[o_place]) || int4send(v_timeline)
                                 || int4send(octet_length(v_holder)) || convert_to(v_holder, 'UTF8') || convert_to(f.name, 'UTF8'))
             where f.id = o_resource and (f.epoch, f.token) < (p_epochs[o_place], p_tokens[o_place]) -- mutant: claim-moves-a-higher-fence, claim-compares-tokens-without-epochs, claim-repeated-moves-the-fence
               and (f.seq > 0 or {{schema}}.retired(f.name, p_epochs[o_place], p_tokens[o_place]) is null) -- mutant: claim-under-a-retired-grant
            returning f.id, f.seq, f.hash, f.name)
        insert into {{schema}}.history (resource, kind, seq, claim, tx, xid, at, hash, epoch, token, timeline, holder, name)
        select m.id, 'c', m.seq, m.seq, p_tx, pg_current_xact_id(), v_at, m.hash, p_epochs[o_place], p_tokens[o_place], v_timeline, v_holder, m.name
          from moved m
        returning seq, tx into o_seq, o_tx;
        if not found then
            -- The fence never falls, so a higher one needs no lock.
            select * into r from {{schema}}.resource where id = o_resource;
            if not found then
                raise exception 'fencekit: the resource was just retired' using errcode = '40001';
            end if;
            if (r.epoch, r.token) = (p_epochs[o_place], p_tokens[o_place]) then
                select * into strict r from {{schema}}.resource where id = o_resource for no key update; -- a seal may be under way; and what a claim returns is durable mutant: claim-does-not-lock
            end if;
            q := {{schema}}.retired(r.name, p_epochs[o_place], p_tokens[o_place]);
            if r.seq = 0 and q.name is not null then
                r.epoch := q.epoch;
                r.token := q.token;
                r.holder := 'retired';
            end if;
            o_seq := r.seq;
            o_tx := r.tx;
            o_state := case
                when (r.epoch, r.token) > (p_epochs[o_place], p_tokens[o_place]) or r.holder = 'retired' and r.seq = 0 then 'ZF001'
                when (r.epoch, r.token) < (p_epochs[o_place], p_tokens[o_place]) then 'ZF004'
                when r.holder <> v_holder then 'ZF006' -- mutant: claim-takes-any-holder
                when r.timeline <> v_timeline then 'ZF011'
            end;
            if o_state is not null then
                o_detail := encode(convert_to({{schema}}.detail(r)::text, 'UTF8'), 'hex');
            end if;
        end if;
        return next;
    end loop;
end $$;

-- look returns the number, grant and position of each fence, for a read without a claim: not of all, if one has never
-- been claimed, has lost what was seen (p_seqs and p_txs are as for claim), or is of another timeline. It locks
-- nothing. What no standby has may be visible, if a wait for it was cancelled, or after a crash: so where there is
-- one to wait for, look writes, and COMMIT waits until the standby has all that look has seen.
create function {{schema}}.look(p_names text[], p_shard text, p_seqs bigint[], p_txs bigint[])
returns table (o_resource integer, o_epoch bigint, o_token bigint, o_holder text, o_seq bigint, o_tx bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_timeline integer := {{schema}}.timeline();
    r          {{schema}}.resource;
begin
    perform {{schema}}.check_shard(p_shard);
    for i in 1..cardinality(p_names) loop
        select * into r from {{schema}}.resource where name = convert_from(decode(p_names[i], 'hex'), 'UTF8') and token > 0 and timeline = v_timeline;
        exit when not found or p_seqs[i] > 0 and (r.seq, r.tx) <> (p_seqs[i], p_txs[i]) and {{schema}}.lost(r.id, p_seqs[i], p_txs[i]);
        return query select r.id, r.epoch::bigint, r.token::bigint, encode(convert_to(r.holder, 'UTF8'), 'hex'), r.seq::bigint, r.tx::bigint;
    end loop;
    if current_setting('synchronous_standby_names') <> '' then
        perform {{schema}}.raise_durability(), pg_logical_emit_message(true, 'fencekit', '');
    end if;
end $$;

-- check_fence takes the lock by which eviction finds a transaction, and rejects the transaction if the grant no
-- longer has the fence; else it returns the name of the resource. It reads the fence after the lock: at READ
-- COMMITTED a claim either sees this lock or is seen here. Callers pin the settings.
create function {{schema}}.check_fence(p_resource integer, p_epoch bigint, p_token bigint) returns text
language plpgsql as $$
declare
    v_timeline integer;
    v_name     text;
    v_locked   boolean;
begin
    -- Without waiting, since any role can take the key. Then only eviction is lost.
    v_locked := pg_try_advisory_xact_lock_shared(p_resource, (p_token & 2147483647)::integer);
    select timeline, name into v_timeline, v_name from {{schema}}.resource where id = p_resource and epoch = p_epoch and token = p_token;
    if not found then
        perform {{schema}}.reject(null, p_resource, p_epoch, p_token, '', 0);
    elsif v_timeline <> (case when v_timeline > 0 then ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer else {{schema}}.timeline() end) then
        perform {{schema}}.reject('ZF011', p_resource, p_epoch, p_token, '', 0);
    end if;
    return v_name;
end $$;

-- check_fences is check_fence under several grants. It leaves the names of the resources for note_write.
create function {{schema}}.check_fences(p_resources integer[], p_epochs bigint[], p_tokens bigint[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    n         integer := cardinality(p_resources);
    v_guarded text := E'\n';
begin
    if (n > 0 and cardinality(p_epochs) = n and cardinality(p_tokens) = n) is not true then
        raise exception 'fencekit: check_fences: arrays of different lengths, or null' using errcode = 'ZF007';
    end if;
    for i in 1..n loop
        v_guarded := v_guarded || {{schema}}.check_fence(p_resources[i], p_epochs[i], p_tokens[i]) || E'\n';
    end loop;
    perform set_config('fencekit.guarded', v_guarded, true);
end $$;

-- begin_check is the begin check in one function, for programs that follow the protocol in SQL; a Store has cheaper
-- queries of its own. It returns the server's id of the transaction, which the seal requires, and leaves it in a
-- setting that ends with the transaction.
create function {{schema}}.begin_check(
    p_resource integer, p_epoch bigint, p_token bigint,
    p_lock_ms text, p_statement_ms text, p_idle_ms text, p_network_ms text, p_check_ms text
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    perform set_config('lock_timeout', p_lock_ms, true), set_config('statement_timeout', p_statement_ms, true),
            set_config('idle_in_transaction_session_timeout', p_idle_ms, true), set_config('tcp_user_timeout', p_network_ms, true),
            case when p_check_ms <> '0' then set_config('client_connection_check_interval', p_check_ms, true) end;
    perform {{schema}}.check_fences(array[p_resource], array[p_epoch], array[p_token]);
    return set_config('fencekit.xid', pg_current_xact_id()::text, true);
end $$;

-- refuse is reject as an expression. The holder comes in hexadecimal.
create function {{schema}}.refuse(
    p_state text, p_resource integer, p_epoch bigint, p_token bigint, p_holder text default '', p_seq bigint default 0
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    perform {{schema}}.reject(p_state, p_resource, p_epoch, p_token, convert_from(decode(p_holder, 'hex'), 'UTF8'), p_seq);
    return null;
end $$;

-- read_xid returns the id of a read-only transaction if it is the one that passed the begin check, and only reads.
-- p_xid is what the begin check returned, or null: then the caller compares.
create function {{schema}}.read_xid(p_xid text) returns text
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_xid text := nullif(current_setting('fencekit.xid', true), '');
begin
    if (v_xid = coalesce(p_xid, v_xid) and current_setting('transaction_read_only') = 'on') is not true then
        raise exception 'fencekit: the transaction that passed the begin check has ended' using errcode = 'ZF003';
    end if;
    -- READ ONLY lets temporary tables be written and, before PostgreSQL 16, large objects.
    if pg_current_xact_id_if_assigned() is not null then
        raise exception 'fencekit: an operation that only reads has written a large object or a temporary table' using errcode = '25006';
    end if;
    return v_xid;
end $$;

-- seal lets the transaction that passed the begin check commit, if each fence is where its grant left it (G2): it moves
-- the fence by one position and writes the entry of that position. Of two moves within a grant the later one is so
-- rejected. The resources come in ascending order, which is the order of the locks. p_xid is what the begin check
-- returned, or null if it is in the setting: then the caller compares it with what the seal returns. Text is in
-- hexadecimal, so that no setting can change its meaning; ops may be empty.
--
-- If p_own, claim_here has locked the fences, and the seal writes its claims too: a fence moves by two positions at
-- once, past p_seqs, which are the claims'.
--
-- p_kept are those of the resources for which it keeps keys of guard.Once, with the hash of the request and the
-- result: no key without a move (see storage.Store.Recall). Keys come after the moves: if another transaction has
-- kept one meanwhile, the fence rejects this one by name, before the unique index would.
--
-- What the executor and PL/pgSQL set up anew in each transaction costs most of its time, and a call of a function in
-- PL/pgSQL as much as a statement: so there is none.
create function {{schema}}.seal(
    p_resources integer[], p_epochs bigint[], p_tokens bigint[], p_holders text[], p_seqs bigint[], p_prevs bigint[],
    p_tx bigint, p_ops text[], p_xid xid8, p_own boolean default false,
    p_kept integer[] default '{}', p_keys text[] default '{}', p_requests text[] default '{}', p_results text[] default '{}'
) returns xid8
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    n          integer := cardinality(p_resources);
    v_xid      xid8 := pg_current_xact_id();
    v_at       timestamptz := clock_timestamp();
    v_id       integer;
    v_epoch    bigint;
    v_token    bigint;
    v_holder   text;
    v_seq      bigint;
    v_ops      bytea;
    v_claim    bigint;
    v_name     text;
    v_timeline integer;
    v_claimed  bytea;
    v_hash     bytea;
    v_done     text;
begin
    if v_xid is distinct from coalesce(p_xid, nullif(current_setting('fencekit.xid', true), '')::xid8) then
        raise exception 'fencekit: the transaction that passed the begin check has ended' using errcode = 'ZF003';
    end if;
    if current_setting('synchronous_commit') not in ('on', 'remote_apply') or current_setting('client_min_messages') = 'error' then
        perform {{schema}}.raise_durability();
    end if;
    if (n > 0 and cardinality(p_ops) = n) is not true then
        raise exception 'fencekit: seal: arrays of different lengths, or null' using errcode = 'ZF007';
    end if;
    for i in 1..n loop
        v_id := p_resources[i];
        v_epoch := p_epochs[i];
        v_token := p_tokens[i];
        v_holder := convert_from(decode(p_holders[i], 'hex'), 'UTF8');
        v_seq := p_seqs[i];
        v_ops := nullif(decode(p_ops[i], 'hex'), '');
        if p_own is not true then
            update {{schema}}.resource r
               set seq = v_seq + 1, tx = p_tx, sealed = v_xid,
                   hash = sha256(r.hash || int4send(v_id) || int8send(v_seq + 1) || 'w' || int8send(r.claim_seq) || int8send(p_tx)
                                 || xid8send(v_xid) || timestamptz_send(v_at) || coalesce(v_ops, ''))
             where r.id = v_id and r.epoch = v_epoch and r.token = v_token and r.holder = v_holder -- mutant: seal-without-the-grant
               and r.seq = v_seq and r.tx = p_prevs[i] -- mutant: seal-without-the-expected-position, seal-without-the-expected-number
            returning r.claim_seq, r.hash into v_claim, v_hash;
            if found is not true then -- mutant: seal-does-not-look-whether-the-fence-moved
                perform {{schema}}.reject(null, v_id, v_epoch, v_token, v_holder, v_seq);
            end if;
            insert into {{schema}}.history (resource, kind, seq, claim, tx, xid, at, hash, ops)
            values (v_id, 'w', v_seq + 1, v_claim, p_tx, v_xid, v_at, v_hash, convert_from(v_ops, 'UTF8')::json);
        else
            select name, timeline, hash into v_name, v_timeline, v_claimed
              from {{schema}}.resource where id = v_id and seq = v_seq - 1 and (epoch, token) < (v_epoch, v_token); -- mutant: own-seal-below-the-fence
            if v_timeline = 0 then
                v_timeline := {{schema}}.timeline();
            elsif lpad(to_hex(v_timeline), 8, '0') <> lower(left(pg_walfile_name(pg_current_wal_lsn()), 8)) then
                v_timeline := {{schema}}.timeline();
            end if;
            v_claimed := sha256(v_claimed || int4send(v_id) || int8send(v_seq) || 'c' || int8send(v_seq) || int8send(p_prevs[i])
                                || xid8send(v_xid) || timestamptz_send(v_at) || int8send(v_epoch) || int8send(v_token) || int4send(v_timeline)
                                || int4send(octet_length(v_holder)) || convert_to(v_holder, 'UTF8') || convert_to(v_name, 'UTF8'));
            v_hash := sha256(v_claimed || int4send(v_id) || int8send(v_seq + 1) || 'w' || int8send(v_seq) || int8send(p_tx)
                             || xid8send(v_xid) || timestamptz_send(v_at) || coalesce(v_ops, ''));
            update {{schema}}.resource
               set timeline = v_timeline, epoch = v_epoch, token = v_token, prev_token = token, claim_seq = v_seq, claimed_at = v_at,
                   seq = v_seq + 1, tx = p_tx, sealed = v_xid, holder = v_holder, hash = v_hash
             where id = v_id and seq = v_seq - 1 and v_hash is not null;
            if not found then
                perform {{schema}}.reject(null, v_id, v_epoch, v_token, v_holder, v_seq);
            end if;
            insert into {{schema}}.history (resource, kind, seq, claim, tx, xid, at, hash, ops, epoch, token, timeline, holder, name)
            values (v_id, 'c', v_seq, v_seq, p_prevs[i], v_xid, v_at, v_claimed, null, v_epoch, v_token, v_timeline, v_holder, v_name),
                   (v_id, 'w', v_seq + 1, v_seq, p_tx, v_xid, v_at, v_hash, convert_from(v_ops, 'UTF8')::json, null, null, null, null, null);
        end if;
        if i > 1 then
            if p_resources[i - 1] < v_id is not true then
                raise exception 'fencekit: seal: resources not in ascending order' using errcode = 'ZF007';
            end if;
        end if;
    end loop;
    for i in 1..greatest(cardinality(p_kept), cardinality(p_keys), cardinality(p_requests), cardinality(p_results)) loop
        if (p_kept[i] = any (p_resources) -- mutant: keep-without-a-move
            and num_nulls(p_keys[i], p_requests[i], p_results[i]) = 0) is not true then
            raise exception 'fencekit: seal: a key for a resource without a move, or arrays of different lengths' using errcode = 'ZF007';
        end if;
        insert into {{schema}}.operation (resource, key, request, result, tx, at)
        values (p_kept[i], convert_from(decode(p_keys[i], 'hex'), 'UTF8'), decode(p_requests[i], 'hex'),
                nullif(decode(p_results[i], 'hex'), ''), p_tx,
                greatest(clock_timestamp(), (select seen from {{schema}}.forget_clock where one)));
    end loop;
    v_done := set_config('fencekit.sealed', v_xid::text, true); -- for check_writes
    return v_xid;
end $$;

-- hashes returns those of fences that have just been sealed, in ascending order of their numbers. It is one row, as the
-- seal's, by which the client knows that COMMIT may be under way.
create function {{schema}}.hashes(p_resources integer[]) returns text
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return (select string_agg(encode(hash, 'hex'), '' order by id) from {{schema}}.resource where id = any (p_resources));
end $$;

-- before_commit comes last before a guarded COMMIT. Deferred triggers may have changed the settings that decide
-- what COMMIT waits for.
create function {{schema}}.before_commit() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    if current_setting('synchronous_commit') not in ('on', 'remote_apply') or current_setting('client_min_messages') = 'error' then
        perform {{schema}}.raise_durability();
    end if;
end $$;

-- resolve decides the outcome of a transaction that was to move the fence on from p_seq. It waits for a seal under
-- way. Then it takes the position itself, or reads whether that transaction has it. It always writes, so its answer
-- is as durable as a commit. A transaction that makes its own claim may make the fence too: p_made is the fence's name
-- then, and resolve waits for the name's lock. Without an entry there is none either if it was rolled back.
create function {{schema}}.resolve(
    p_resource integer, p_epoch bigint, p_token bigint, p_holder text, p_seq bigint, p_prev bigint, p_tx bigint, p_void bigint, p_made text default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_at    timestamptz := clock_timestamp();
    v_xid   xid8 := pg_current_xact_id();
    v_seq   bigint;
    v_tx    bigint;
    v_claim bigint;
    v_kind  "char";
    v_hash  bytea;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: resolve needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    -- A null would void nothing, or compare with nothing.
    if num_nulls(p_resource, p_epoch, p_token, p_holder, p_seq, p_prev, p_tx, p_void) > 0 then
        raise exception 'fencekit: resolve: an argument is null' using errcode = 'ZF007';
    end if;
    perform {{schema}}.raise_durability();
    select seq into v_seq from {{schema}}.resource where id = p_resource for no key update;
    if not found then
        if p_made is null then
            return 'unknown';
        end if;
        perform pg_advisory_xact_lock({{schema}}.name_key(p_made), 0); -- mutant: resolve-does-not-wait-for-who-makes-the-fence
        perform pg_logical_emit_message(true, 'fencekit', '');
        select seq into v_seq from {{schema}}.resource where id = p_resource for no key update;
    end if;
    update {{schema}}.resource r
       set seq = p_seq + 1, tx = p_void, sealed = '0',
           hash = sha256(r.hash || int4send(p_resource) || int8send(p_seq + 1) || 'v' || int8send(r.claim_seq) || int8send(p_void) || xid8send(v_xid) || timestamptz_send(v_at))
     where r.id = p_resource and r.epoch = p_epoch and r.token = p_token and r.holder = p_holder and r.seq = p_seq and r.tx = p_prev -- mutant: void-is-not-written
    returning r.claim_seq, r.hash into v_claim, v_hash;
    if found then
        insert into {{schema}}.history (resource, kind, seq, claim, tx, xid, at, hash)
        values (p_resource, 'v', p_seq + 1, v_claim, p_void, v_xid, v_at, v_hash);
        return 'not applied';
    end if;
    select tx, kind into v_tx, v_kind from {{schema}}.history where resource = p_resource and seq = p_seq + 1;
    return case
        when v_tx = p_tx and v_kind = 'w' then 'applied' -- mutant: resolve-takes-any-transaction-for-the-one, resolve-takes-a-void-for-a-commit
        when v_tx is not null or v_seq <= p_seq then 'not applied'
        when v_seq is null and {{schema}}.retired(p_made, p_epoch, p_token) is null then 'not applied'
        else 'unknown' -- the entry was pruned, or the resource retired
    end;
end $$;

-- stale_backends lists the backends that hold the begin check's lock of an earlier claim, with the transactions
-- that they run. A late caller must not disturb later claims.
create function {{schema}}.stale_backends(p_name text, p_epoch bigint, p_token bigint) returns table (o_pid integer, o_transaction text)
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return query
    select l.pid, l.virtualtransaction -- mutant: evict-compares-backends-alone
      from {{schema}}.resource r
      join pg_locks l
        on l.locktype = 'advisory' and l.objsubid = 2 and l.mode = 'ShareLock' and l.classid::bigint = r.id
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
     where r.name = p_name and l.pid is not null and l.pid <> pg_backend_pid()
       and exists (select from (select c.epoch, c.token from {{schema}}.history c
                                 where c.name = p_name and c.kind = 'c' order by c.seq desc limit 1000) c
                    where (c.epoch, c.token) < (p_epoch, p_token) and (c.token & 2147483647) = l.objid::bigint) -- mutant: evict-compares-tokens-only
       and (p_token & 2147483647) <> l.objid::bigint;
end $$;

-- evict terminates those backends and waits up to p_wait_ms for each. A terminated transaction may have committed:
-- only the claim decides. After a claim (p_thorough is false) it looks only for transactions of the grant just
-- superseded, by trying to take their lock, which costs little; older ones were evicted by earlier claims, or are
-- when they stand in the way. It runs with the caller's rights, which pg_terminate_backend checks.
--
-- The signal may arrive when the session serves another user. So evict ends only transactions that it has seen
-- three times, 200 ms apart, and a client whose transaction took more than 100 ms, or didn't commit, looks whether
-- it was superseded before it gives its session to anyone else (end_if_superseded). There are two pauses, since the
-- clock may be set forward during one of them.
create function {{schema}}.evict(
    p_names text[], p_epochs bigint[], p_tokens bigint[], p_wait_ms bigint, p_thorough boolean, out evicted integer, out denied integer
)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_name  text;
    v_stale text[] := '{}'; -- PLACE PID TRANSACTION
    v_one   text;
begin
    evicted := 0;
    denied := 0;
    for i in 1..cardinality(p_names) loop
        v_name := convert_from(decode(p_names[i], 'hex'), 'UTF8');
        if not p_thorough then
            perform from {{schema}}.resource
              where name = v_name and epoch = p_epochs[i] and token = p_tokens[i]
                and prev_token > 0 and not pg_try_advisory_xact_lock(id, (prev_token & 2147483647)::integer);
            continue when not found; -- mutant: evict-looks-for-no-stale-backend
        end if;
        v_stale := v_stale || array(select concat_ws(' ', i, o_pid, o_transaction) from {{schema}}.stale_backends(v_name, p_epochs[i], p_tokens[i]));
    end loop;
    if v_stale = '{}' then
        return;
    end if;
    perform pg_sleep(0.2);
    v_stale := array(
        select s from unnest(v_stale) s cross join lateral (select split_part(s, ' ', 1)::integer as i) p
         where s in (select concat_ws(' ', i, o_pid, o_transaction)
                       from {{schema}}.stale_backends(convert_from(decode(p_names[i], 'hex'), 'UTF8'), p_epochs[i], p_tokens[i])));
    perform pg_sleep(0.2);
    foreach v_one in array v_stale loop
        begin
            -- List and terminate in one statement: the backend may have started another transaction.
            perform pg_terminate_backend(o_pid, p_wait_ms)
               from (select split_part(v_one, ' ', 1)::integer as i) p
              cross join lateral {{schema}}.stale_backends(convert_from(decode(p_names[i], 'hex'), 'UTF8'), p_epochs[i], p_tokens[i])
              where concat_ws(' ', i, o_pid, o_transaction) = v_one;
            if found then
                evicted := evicted + 1;
            end if;
        exception when insufficient_privilege then
            denied := denied + 1;
        end;
    end loop;
end $$;

-- end_if_superseded ends the session if an eviction may have listed its backend. It is called on the connection of
-- a guarded transaction after that has ended, before anything else uses the session. Eviction lists transactions
-- whose grant was superseded while they ran: if the grants still have their fences, it has not listed this one. It
-- runs with the caller's rights, which pg_terminate_backend checks.
create function {{schema}}.end_if_superseded(p_resources integer[], p_epochs bigint[], p_tokens bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    for i in 1..cardinality(p_resources) loop
        perform from {{schema}}.resource where id = p_resources[i] and epoch = p_epochs[i] and token = p_tokens[i];
        if not found then
            perform pg_terminate_backend(pg_backend_pid());
        end if;
    end loop;
end $$;

-- must_affect returns p_count if it is p_want or p_want is null. The error's detail is p_count.
create function {{schema}}.must_affect(p_count bigint, p_want bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    if p_count <> p_want then
        raise exception 'fencekit: a statement of the batch affected % rows, must affect %', p_count, p_want
            using errcode = 'ZF012', detail = p_count::text;
    end if;
    return p_count;
end $$;

-- must_fit returns p_rows if it has at most p_limit bytes.
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

-- forget removes up to p_limit operations that were kept for the retention, by a clock that went steadily for as
-- long: after a jump of the clock all of them could run again. It also removes what ended backends left in
-- pending_write. It returns the number of the operations, and the clock's last reading if the clock has jumped
-- since. If p_dry it only counts them, without a limit.
create function {{schema}}.forget(p_limit integer, p_dry boolean, out o_count bigint, out o_jumped_from timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' set enable_seqscan = off set jit = off as $$
declare
    c           {{schema}}.forget_clock;
    v_now       timestamptz := clock_timestamp();
    v_retention interval;
begin
    select once_retention into strict v_retention from {{schema}}.setting where one for key share;
    o_count := 0;
    if p_dry then
        select count(*) into o_count from {{schema}}.operation o
         where o.at < v_now - v_retention
           and (select v_now between k.seen and k.seen + v_retention / 4 and k.steady <= v_now - v_retention from {{schema}}.forget_clock k where k.one);
        return;
    end if;
    perform {{schema}}.forget_writes();
    select * into c from {{schema}}.forget_clock where one for no key update skip locked;
    if not found then
        return; -- another call is running
    end if;
    v_now := clock_timestamp(); -- not before the reading of a call that has just ended
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

-- repair moves each fence that is behind its history, as after a partial restore, or ahead of it with its last hash,
-- or isn't as its last entry left it, to the history's end, unless it has a higher grant. It returns their names.
-- Only the owner can call it.
create function {{schema}}.repair() returns setof text
language sql volatile set search_path = pg_catalog, pg_temp
begin atomic
    update {{schema}}.resource r
       set timeline = c.timeline, epoch = c.epoch, token = c.token, prev_token = 0, claim_seq = c.seq, claimed_at = c.at, -- mutant: repair-leaves-the-grant
           seq = e.seq, tx = e.tx, sealed = '0', hash = e.hash, holder = c.holder
      from {{schema}}.resource f
     cross join lateral (select * from {{schema}}.history h where h.resource = f.id order by h.seq desc limit 1) e
      join {{schema}}.history c on c.resource = e.resource and c.seq = e.claim and c.kind = 'c'
     where r.id = f.id and (c.epoch, c.token) >= (r.epoch, r.token)
       and (e.seq > r.seq or e.seq < r.seq and e.hash = r.hash or e.seq = r.seq and (c.timeline, c.epoch, c.token, c.seq, c.at, e.tx, e.hash, c.holder)
                                 is distinct from (r.timeline, r.epoch, r.token, r.claim_seq, r.claimed_at, r.tx, r.hash, r.holder))
    returning r.name;
end;

revoke all on all functions in schema {{schema}} from public;
revoke all on all procedures in schema {{schema}} from public;

-- The lock service on this database: see package pglock. A session is a process's; it owns and awaits resources.
--
-- Whoever changes a resource's owner or queue locks its row of "lock" first. An owner is replaced only if its holder
-- gave the resource up, or its session doesn't exist. A session that ends is deleted, once and for good, in a
-- transaction that locks no resource; so no transaction waits for a session's row once it has locked a resource, and
-- none can deadlock.

insert into {{schema}}.migration (version, name) values (7, 'lock');

create table {{schema}}.lock_session (
    id         bigint      primary key, -- random, used once
    label      text        collate "C" not null,
    timeline   integer     not null,
    expires_at timestamptz not null,
    renewals   bigint      not null default 0, -- how many there were
    first_call bigint      not null default 0 -- calls of lock_acquire with lower numbers have been given up: they do nothing
) with (fillfactor = 50);

create table {{schema}}.lock (
    resource {{schema}}.resource_name primary key,
    epoch    {{schema}}.epoch not null default 0, -- of the last grant, as is token
    token    {{schema}}.token not null default 0,
    session  bigint, -- of the owner; null: there is none
    holder   {{schema}}.holder_name,
    value    text -- what the leader of an election proclaims
) with (fillfactor = 50);

create table {{schema}}.lock_waiter (
    id       bigint generated always as identity,
    resource {{schema}}.resource_name not null,
    session  bigint not null,
    holder   {{schema}}.holder_name not null unique,
    value    text,
    primary key (resource, id)
);
create index lock_waiter_session on {{schema}}.lock_waiter (session);

create table {{schema}}.lock_eviction (
    id       bigint generated always as identity primary key,
    resource {{schema}}.resource_name not null,
    epoch    {{schema}}.epoch not null,
    token    {{schema}}.token not null,
    holder   {{schema}}.holder_name not null,
    reason   text not null constraint lock_eviction_reason check (octet_length(reason) between 1 and 1000),
    operator text not null constraint lock_eviction_operator check (octet_length(operator) between 1 and 1000),
    role     text not null default session_user,
    at       timestamptz not null default clock_timestamp()
);

-- Tokens. A transaction that is rolled back leaves a gap: its token may have travelled.
create sequence {{schema}}.lock_token cache 1;

-- The first five functions are called by the others, which pin the settings.

-- lock_wake tells a session that something may have changed for a holder. Anyone may send such notifications, so
-- they say no more. A COMMIT that finds the server's queue of notifications full fails, and with it the release or
-- grant. So none is sent while the queue is filled to p_full: whoever waits looks each second besides.
create function {{schema}}.lock_wake(p_session bigint, p_holder text, p_full double precision default 0.9) returns void
language plpgsql as $$
begin
    if pg_notification_queue_usage() >= p_full then
        return;
    end if;
    perform pg_notify('fencekit_' || to_hex(p_session), encode(convert_to(p_holder, 'UTF8'), 'hex'));
end $$;

-- lock_row locks the row of a resource, and makes it if need be.
create function {{schema}}.lock_row(p_resource text) returns {{schema}}.lock
language plpgsql as $$
declare
    k {{schema}}.lock;
begin
    loop
        select * into k from {{schema}}.lock where resource = p_resource for update;
        if found then
            return k;
        end if;
        insert into {{schema}}.lock (resource) values (p_resource) on conflict do nothing;
    end loop;
end $$;

-- lock_grant makes a holder the owner, or returns null while a transaction moves or makes the resource's fence: it may
-- be that of a call that claims by itself (claim_here). Within an epoch the token is above all that were granted, and
-- above the fence's, which that lock keeps where it is, and what was retired.
create function {{schema}}.lock_grant(p_resource text, p_session bigint, p_holder text, p_value text) returns {{schema}}.lock
language plpgsql as $$
declare
    v_epoch bigint;
    k       {{schema}}.lock;
begin
    if not exists (select from {{schema}}.resource where name = p_resource) and not pg_try_advisory_xact_lock_shared({{schema}}.name_key(p_resource), 0) then -- mutant: lock-beside-a-first-own-claim
        return null;
    end if;
    perform from {{schema}}.resource where name = p_resource for no key update skip locked;
    if not found and exists (select from {{schema}}.resource where name = p_resource) then -- mutant: lock-beside-an-own-claim
        return null;
    end if;
    select epoch into strict v_epoch from {{schema}}.setting where one;
    update {{schema}}.lock l
       set session = p_session, holder = p_holder, value = p_value, epoch = v_epoch,
           token = greatest(nextval('{{schema}}.lock_token'), case when l.epoch = v_epoch then l.token + 1 end,
                            (select r.token + 1 from {{schema}}.resource r where r.name = p_resource and r.epoch = v_epoch), -- mutant: lock-below-the-fence
                            (select max(q.token) + 1 from {{schema}}.queue q where starts_with(p_resource, q.name || '/') and q.epoch = v_epoch))
     where l.resource = p_resource returning * into k;
    return k;
end $$;

-- lock_pass gives a resource without an owner, whose row is locked, to the first waiter whose session lives. If it
-- can't be granted yet, that one is told to ask again. The holder p_asker gets an answer, and is told nothing: else one
-- that awaits a fence would ask without a pause.
create function {{schema}}.lock_pass(p_resource text, p_asker text default null) returns {{schema}}.lock
language plpgsql as $$
declare
    k {{schema}}.lock;
    w {{schema}}.lock_waiter;
begin
    for w in select * from {{schema}}.lock_waiter where resource = p_resource order by id loop
        if exists (select from {{schema}}.lock_session where id = w.session and expires_at > clock_timestamp()) then
            k := {{schema}}.lock_grant(p_resource, w.session, w.holder, w.value);
            if w.holder is distinct from p_asker then
                perform {{schema}}.lock_wake(w.session, w.holder);
            end if;
            exit when k.resource is null;
        end if;
        delete from {{schema}}.lock_waiter where resource = p_resource and id = w.id;
        if k.resource is not null then
            return k;
        end if;
    end loop;
    update {{schema}}.lock set session = null, holder = null, value = null where resource = p_resource returning * into k;
    return k;
end $$;

-- lock_state says what a holder has. It owns the resource if o_epoch is given. Else o_left is how many milliseconds
-- the owner's session has left, and null if that is over; o_waits says whether the holder still has its place.
create function {{schema}}.lock_state(p_resource text, p_holder text)
returns table (o_epoch bigint, o_token bigint, o_contended boolean, o_owner text, o_left bigint, o_waits boolean)
language plpgsql as $$
begin
    return query
    select case when k.holder = p_holder then k.epoch::bigint end, case when k.holder = p_holder then k.token::bigint end,
           exists (select from {{schema}}.lock_waiter w where w.resource = p_resource and w.session <> k.session),
           encode(convert_to(k.holder, 'UTF8'), 'hex'),
           (select ceil(extract(epoch from s.expires_at - clock_timestamp()) * 1000)::bigint from {{schema}}.lock_session s where s.id = k.session),
           exists (select from {{schema}}.lock_waiter w where w.holder = p_holder)
      from {{schema}}.lock k where k.resource = p_resource;
end $$;

-- lock_open begins a session, ends those that have expired, and removes what they left.
create function {{schema}}.lock_open(p_session bigint, p_label text, p_ttl bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    perform {{schema}}.lock_end(null), {{schema}}.raise_durability();
    -- What came just as its session ended.
    delete from {{schema}}.lock_waiter w where not exists (select from {{schema}}.lock_session s where s.id = w.session);
    insert into {{schema}}.lock_session (id, label, timeline, expires_at)
    values (p_session, convert_from(decode(p_label, 'hex'), 'UTF8'), {{schema}}.timeline(), clock_timestamp() + p_ttl * interval '1 millisecond');
end $$;

-- lock_renew renews a session, and with it all that it owns and awaits, and counts that. It returns the count; 0 if
-- the session is over; and -1 if the server isn't the one that it began on, or has forgotten a renewal whose answer the
-- process has seen: a failover or a restore may have lost what was granted since, and brought back what was released.
-- The count may be higher than the process knows, since an answer may be lost.
create function {{schema}}.lock_renew(p_session bigint, p_ttl bigint, p_seen bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_timeline integer := {{schema}}.timeline();
    v_renewals bigint;
begin
    perform {{schema}}.raise_durability();
    update {{schema}}.lock_session set expires_at = clock_timestamp() + p_ttl * interval '1 millisecond', renewals = renewals + 1
     where id = p_session and expires_at > clock_timestamp() and timeline = v_timeline and renewals >= p_seen
     returning renewals into v_renewals;
    if found then
        return v_renewals;
    end if;
    return case when exists (select from {{schema}}.lock_session where id = p_session and (timeline <> v_timeline or renewals < p_seen)) then -1 else 0 end;
end $$;

-- lock_end ends a session, or all that have expired if p_session is null, and wakes who waits for what they owned. A
-- session that is just being renewed hasn't expired.
create function {{schema}}.lock_end(p_session bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_ids bigint[];
begin
    if p_session is null then
        v_ids := array(select id from {{schema}}.lock_session where expires_at <= clock_timestamp() for update skip locked);
    else
        v_ids := array(select id from {{schema}}.lock_session where id = p_session for update);
    end if;
    if v_ids = '{}' then
        return;
    end if;
    perform {{schema}}.raise_durability();
    delete from {{schema}}.lock_session where id = any (v_ids);
    delete from {{schema}}.lock_waiter
     where holder = any (array(select holder from {{schema}}.lock_waiter where session = any (v_ids) for update skip locked));
    perform {{schema}}.lock_wake(o.session, o.holder)
       from (select distinct on (w.resource) w.session, w.holder
               from {{schema}}.lock_waiter w join {{schema}}.lock k on k.resource = w.resource
              where k.session = any (v_ids) and w.session <> all (v_ids) order by w.resource, w.id) o;
end $$;

-- lock_evict ends the session of a resource's owner if that has the expected token, passes the resource on, and keeps a
-- record for 90 days. It returns the owner that it found, if any, and whether it evicted it. Once it has locked the
-- session it waits for nothing: if another transaction has just then locked the resource, it fails with 55P03, and the
-- caller tries again.
create function {{schema}}.lock_evict(p_name text, p_token bigint, p_reason text, p_operator text)
returns table (o_evicted boolean, o_epoch bigint, o_token bigint, o_holder text, o_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    k         {{schema}}.lock;
    v_session bigint;
begin
    perform {{schema}}.raise_durability();
    select l.session into v_session from {{schema}}.lock l where l.resource = p_name;
    perform from {{schema}}.lock_session s where s.id = v_session and s.expires_at > clock_timestamp() for update;
    if not found then
        return;
    end if;
    select * into k from {{schema}}.lock l where l.resource = p_name for update skip locked;
    if not found or k.session is distinct from v_session then
        raise exception 'fencekit: the lock is just changing hands' using errcode = '55P03';
    end if;
    o_evicted := k.token = p_token;
    o_epoch := k.epoch;
    o_token := k.token;
    o_holder := k.holder;
    if o_evicted then
        perform {{schema}}.lock_end(v_session), {{schema}}.lock_pass(p_name);
        delete from {{schema}}.lock_eviction e where e.at < clock_timestamp() - interval '90 days';
        insert into {{schema}}.lock_eviction (resource, epoch, token, holder, reason, operator)
        values (p_name, o_epoch, o_token, o_holder, p_reason, p_operator) returning at into o_at;
    end if;
    return next;
end $$;

-- lock_acquire acquires resources in their order, up to the first that another holder owns or awaits. For that one
-- it queues if p_wait. It may be repeated: a holder that owns or waits already goes on. It returns a row for each
-- resource that it acquired or took no further: its place and its lock_state. There is none if the session is over or
-- the call, which has a number, was given up.
create function {{schema}}.lock_acquire(p_session bigint, p_call bigint, p_names text[], p_holders text[], p_value text, p_wait boolean)
returns table (o_place integer, o_epoch bigint, o_token bigint, o_contended boolean, o_owner text, o_left bigint, o_waits boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_name   text;
    v_holder text;
    v_value  text := convert_from(decode(p_value, 'hex'), 'UTF8');
    v_lives  boolean; -- the owner's session
    v_first  boolean; -- none waits
    k        {{schema}}.lock;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: lock_acquire needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    perform {{schema}}.raise_durability();
    for v_name in select n from (select convert_from(decode(h, 'hex'), 'UTF8') collate "C" as n from unnest(p_names) h) names order by n loop
        k := {{schema}}.lock_row(v_name);
    end loop;
    if not exists (select from {{schema}}.lock_session where id = p_session and expires_at > clock_timestamp() and first_call <= p_call) then
        return;
    end if;
    for i in 1..cardinality(p_names) loop
        v_name := convert_from(decode(p_names[i], 'hex'), 'UTF8');
        v_holder := convert_from(decode(p_holders[i], 'hex'), 'UTF8');
        if cardinality(p_names) > 1 then
            select * into strict k from {{schema}}.lock where resource = v_name;
        end if;
        v_lives := exists (select from {{schema}}.lock_session where id = k.session);
        v_first := not exists (select from {{schema}}.lock_waiter where resource = v_name);
        if not v_lives and (k.session is not null or not v_first) then
            k := {{schema}}.lock_pass(v_name, v_holder);
        end if;
        if k.session is null and v_first then
            k := {{schema}}.lock_grant(v_name, p_session, v_holder, v_value);
        end if;
        if k.holder is distinct from v_holder and p_wait then
            insert into {{schema}}.lock_waiter (resource, session, holder, value) values (v_name, p_session, v_holder, v_value) on conflict do nothing;
            if k.session <> p_session and not exists (
                select from {{schema}}.lock_waiter where resource = v_name and session <> k.session and holder <> v_holder
            ) then -- else the owner knows already
                perform {{schema}}.lock_wake(k.session, k.holder);
            end if;
        end if;
        return query select i, s.* from {{schema}}.lock_state(v_name, v_holder) s;
        if k.holder is distinct from v_holder then
            if v_lives and i = 1 then
                perform set_config('synchronous_commit', 'off', true); -- nothing was granted, and a lost place is taken again
            end if;
            return;
        end if;
    end loop;
end $$;

-- lock_release gives up what a holder owns or its place in the queue, and passes the resource on. From then on calls
-- of lock_acquire with numbers below p_first_call do nothing, should they still arrive.
create function {{schema}}.lock_release(p_session bigint, p_first_call bigint, p_name text, p_holder text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_name   text := convert_from(decode(p_name, 'hex'), 'UTF8');
    v_holder text := convert_from(decode(p_holder, 'hex'), 'UTF8');
begin
    perform {{schema}}.raise_durability();
    update {{schema}}.lock_session set first_call = p_first_call where id = p_session and first_call < p_first_call;
    if (select l.holder = v_holder from {{schema}}.lock_row(v_name) l) then
        perform {{schema}}.lock_pass(v_name);
    end if;
    delete from {{schema}}.lock_waiter where holder = v_holder;
end $$;

-- lock_look returns the lock_state of holders, with their places. The first p_waiting of them don't know of a grant
-- yet. It may be less durable than it has to be before they do: the wait for a standby was cut short.
create function {{schema}}.lock_look(p_names text[], p_holders text[], p_waiting integer)
returns table (o_place integer, o_epoch bigint, o_token bigint, o_contended boolean, o_owner text, o_left bigint, o_waits boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    perform {{schema}}.raise_durability();
    for i in 1..cardinality(p_names) loop
        o_place := i;
        select * into o_epoch, o_token, o_contended, o_owner, o_left, o_waits from {{schema}}.lock_state(convert_from(decode(p_names[i], 'hex'), 'UTF8'), convert_from(decode(p_holders[i], 'hex'), 'UTF8'));
        if i <= p_waiting and o_epoch is not null and current_setting('synchronous_standby_names') <> '' then
            perform pg_logical_emit_message(true, 'fencekit', ''); -- a write, without which COMMIT would not wait
        end if;
        return next;
    end loop;
end $$;

-- lock_proclaim replaces the value of a leader, and returns whether the holder still is it.
create function {{schema}}.lock_proclaim(p_name text, p_holder text, p_value text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    perform {{schema}}.raise_durability();
    update {{schema}}.lock k set value = convert_from(decode(p_value, 'hex'), 'UTF8')
     where resource = convert_from(decode(p_name, 'hex'), 'UTF8') and holder = convert_from(decode(p_holder, 'hex'), 'UTF8')
       and exists (select from {{schema}}.lock_session s where s.id = k.session);
    return found;
end $$;

-- lock_leader returns the owner of a resource, if its session has not expired.
create function {{schema}}.lock_leader(p_name text) returns table (o_epoch bigint, o_token bigint, o_holder text, o_value text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return query
    select k.epoch::bigint, k.token::bigint, encode(convert_to(k.holder, 'UTF8'), 'hex'), encode(convert_to(coalesce(k.value, ''), 'UTF8'), 'hex')
      from {{schema}}.lock k join {{schema}}.lock_session s on s.id = k.session
     where k.resource = convert_from(decode(p_name, 'hex'), 'UTF8') and s.expires_at > clock_timestamp();
end $$;

-- create_here makes what claim_here doesn't: the fences of several resources. It also raises the mark, which a function
-- must not keep locked, and the sequence, to be above the fences and what was granted.
create function {{schema}}.create_here(p_names text[], p_shard text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_names  text[] := array(select convert_from(decode(h, 'hex'), 'UTF8') collate "C" as n from unnest(p_names) h order by n); -- mutant: create-here-in-any-order
    v_name   text;
    v_token  bigint;
    v_behind bigint;
    v_state  text;
    v_detail json;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: create_here needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    lock table {{schema}}.resource in row exclusive mode;
    perform {{schema}}.raise_durability(), {{schema}}.check_shard(p_shard);
    foreach v_name in array v_names loop
        if encode(convert_to(v_name, 'UTF8'), 'hex') ~ '^(..)*([01].|7f|c2[89].)' then -- control characters forge lines
            raise exception 'fencekit: create_here: argument out of bounds' using errcode = 'ZF007';
        end if;
        if not exists (select from {{schema}}.resource where name = v_name) then
            perform pg_advisory_xact_lock({{schema}}.name_key(v_name), 0), {{schema}}.create_fence(v_name);
        end if;
    end loop;
    perform pg_advisory_xact_lock({{schema}}.name_key(''), 0);
    v_token := nextval('{{schema}}.lock_token');
    select max(t.token) - v_token into v_behind
      from {{schema}}.setting s
      join (select r.epoch, r.token from {{schema}}.resource r where r.name = any (v_names) union all
            select l.epoch, l.token from {{schema}}.lock l where l.resource = any (v_names) union all
            select q.epoch, q.token from {{schema}}.queue q) t on t.epoch = s.epoch;
    if v_behind > 100000 then
        v_token := setval('{{schema}}.lock_token', v_token + v_behind);
    elsif v_behind > 0 then -- setval might take back what others draw just now
        select max(nextval('{{schema}}.lock_token')) into v_token from generate_series(1, v_behind);
    end if;
    select m.o_state, m.o_detail into v_state, v_detail
      from {{schema}}.setting s, {{schema}}.pass_marks(s.epoch, v_token + 1) m;
    if v_state is not null then
        raise exception 'fencekit: no token can be drawn' using errcode = v_state, detail = v_detail::text;
    end if;
end $$;

-- claim_here lets the transaction that is to move fences claim their resources too, unless they are owned or awaited,
-- and returns for each its place among the names, the number of the fence, and the epoch, token and position of its
-- claim, which the seal writes. The fences stay locked until the transaction ends: until then nothing else moves them,
-- and no lock of the resources is granted. It locks them in the order of their numbers, as seals do, each behind the
-- lock of its name. The missing fence of a single resource it makes.
--
-- p_seqs and p_txs are as for claim. A grant whose transaction still runs is left to claim, which evicts it.
--
-- With p_epochs and p_tokens it claims under grants of another lock service, and doesn't look at locks. What it can't
-- claim so is left to claim, which rejects or evicts.
--
-- What the executor and PL/pgSQL set up anew in each transaction costs most of its time: a join or a subquery more than
-- another statement, and each function that an expression names, called or not.
create function {{schema}}.claim_here(p_names text[], p_holders text[], p_shard text, p_seqs bigint[], p_txs bigint[],
                                     p_epochs bigint[] default null, p_tokens bigint[] default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    v_order    integer[] := '{1}';
    v_guarded  text := E'\n';
    v_answer   text;
    v_name     text;
    v_holder   text;
    v_done     boolean;
    i          integer;
    v_id       integer; -- of the fence, as timeline, epoch, token, seq and tx
    v_timeline integer;
    v_epoch    bigint;
    v_token    bigint;
    v_seq      bigint;
    v_tx       bigint;
    v_sealed   boolean; -- by this transaction
    s_epoch    bigint; -- the database's, and so the claim's
    s_mark     bigint;
    s_reach    bigint;
    s_shard    text;
    s_tells    boolean;
    s_token    bigint; -- the claim's
    k_epoch    bigint; -- the last lock's, as token and session
    k_token    bigint;
    k_session  bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: claim_here needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    if cardinality(p_names) > 1 then
        v_order := array(select u.place from unnest(p_names) with ordinality u (name, place)
                           join {{schema}}.resource f on f.name = convert_from(decode(u.name, 'hex'), 'UTF8') order by f.id);
        if cardinality(v_order) < cardinality(p_names) then -- else two such transactions could wait in a circle
            raise exception 'fencekit: a resource has no fence yet' using errcode = 'ZF017';
        end if;
    end if;
    foreach i in array v_order loop -- one by one: what is owned isn't locked while a later one is waited for
        -- Control characters, of ASCII and U+0080 to U+009F, forge lines.
        if (length(p_names[i]) > 0 and length(p_holders[i]) between 2 and 512 and p_holders[i] !~ '^(..)*([01].|7f|c2[89].|.?[^0-9a-f])'
            and p_seqs[i] is not null and p_txs[i] is not null) is not true then
            raise exception 'fencekit: claim_here: argument out of bounds' using errcode = 'ZF007';
        end if;
        v_name := convert_from(decode(p_names[i], 'hex'), 'UTF8');
        v_holder := convert_from(decode(p_holders[i], 'hex'), 'UTF8');
        v_done := pg_advisory_xact_lock({{schema}}.name_key(v_name), 0) is null;
        select id, timeline, epoch, token, seq, tx, sealed = pg_current_xact_id() and age(xmin) <= 0 into v_id, v_timeline, v_epoch, v_token, v_seq, v_tx, v_sealed
          from {{schema}}.resource where name = v_name for no key update; -- mutant: claim-here-does-not-lock
        if not found then
            if encode(convert_to(v_name, 'UTF8'), 'hex') ~ '^(..)*([01].|7f|c2[89].)' then
                raise exception 'fencekit: claim_here: argument out of bounds' using errcode = 'ZF007';
            end if;
            perform {{schema}}.create_fence(v_name);
            select id, timeline, epoch, token, seq, tx, false into v_id, v_timeline, v_epoch, v_token, v_seq, v_tx, v_sealed
              from {{schema}}.resource where name = v_name for no key update;
        end if;
        -- Not for the transaction: it would free this lock at its end, but perhaps after the name's. In one expression, so
        -- that no cancellation comes in between.
        if not (pg_try_advisory_lock(v_id, (v_token & 2147483647)::integer) and pg_advisory_unlock(v_id, (v_token & 2147483647)::integer)) then
            raise exception 'fencekit: an older transaction of the resource still runs' using errcode = 'ZF018';
        end if;
        if p_seqs[i] > 0 and (v_seq, v_tx) <> (p_seqs[i], p_txs[i]) then
            if {{schema}}.lost(v_id, p_seqs[i], p_txs[i]) then
                perform {{schema}}.reject('ZF004', v_id, coalesce(p_epochs[i], v_epoch), coalesce(p_tokens[i], 0), v_holder, 0);
            end if;
        end if;
        if v_sealed then -- as for check_writes; mutant: claim-here-behind-a-seal
            raise exception 'fencekit: claim_here: the transaction has sealed the resource' using errcode = 'ZF003';
        end if;
        -- In snapshots of their own, behind the lock of the row: a lock may have been granted while this waited, and the
        -- shard changed.
        select epoch, token, token + max_token_jump / 1024, coalesce(shard, ''), tells_timeline into s_epoch, s_mark, s_reach, s_shard, s_tells
          from {{schema}}.setting where one;
        if v_timeline > 0 and not s_tells then -- as from the dump of a server that tells it; claim notes that this one doesn't
            raise exception 'fencekit: the fence has the timeline of another server' using errcode = 'ZF018';
        end if;
        if s_shard is distinct from p_shard then
            perform {{schema}}.check_shard(p_shard);
        end if;
        if v_seq = 0 then
            select greatest(v_token, max(q.token)) into v_token from {{schema}}.queue q where starts_with(v_name, q.name || '/') and q.epoch = s_epoch; -- mutant: claim-here-under-a-retired-grant
            v_epoch := s_epoch;
        end if;
        s_token := p_tokens[i];
        if s_token is null then
            select epoch, token, session into k_epoch, k_token, k_session from {{schema}}.lock where resource = v_name;
            if found then
                if k_session is not null -- mutant: own-claim-of-what-is-owned
                   or exists (select from {{schema}}.lock_waiter where resource = v_name) then -- mutant: own-claim-of-what-is-awaited
                    raise exception 'fencekit: the resource is owned or awaited' using errcode = 'ZF018';
                end if;
            end if;
            s_token := nextval('{{schema}}.lock_token');
        end if;
        if (s_token > case when k_epoch = s_epoch then k_token else 0 end
            and (s_epoch, s_token) > (v_epoch, v_token) -- mutant: claim-here-below-the-fence
            and s_mark > 0 and s_token <= s_reach and coalesce(p_epochs[i], s_epoch) = s_epoch) is not true then
            raise exception 'fencekit: the mark or the sequence is to be raised; or the grant is not above the fence''s' using errcode = 'ZF017';
        end if;
        v_answer := concat_ws(' ', v_answer, i, v_id, s_epoch, s_token, v_seq + 1);
        v_guarded := v_guarded || v_name || E'\n';
    end loop;
    v_done := set_config('fencekit.guarded', v_guarded, true) is null; -- for note_write
    return v_answer;
end $$;

-- silent_here lists the backends that have locked resources by claim_here and wait for their client within a
-- statement, as in COPY FROM STDIN, or in the middle of a message. No timeout of the server bounds that.
create function {{schema}}.silent_here(p_names text[]) returns setof text
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return query
    select concat_ws(' ', l.pid, l.virtualtransaction, a.query_start, c.bytes_processed)
      from (select convert_from(decode(h, 'hex'), 'UTF8') from unnest(p_names) h) r (name)
      join pg_locks l
        on l.locktype = 'advisory' and l.objsubid = 2 and l.granted and l.classid::bigint = {{schema}}.name_key(r.name)::bigint + 4294967296 and l.objid::bigint = 0
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
      join pg_stat_activity a on a.pid = l.pid and a.state = 'active' and a.wait_event = 'ClientRead'
      left join pg_stat_progress_copy c on c.pid = l.pid;
end $$;

-- evict_here terminates those of them whose clients send nothing for p_silent_ms. It runs with the caller's rights, by
-- which the server shows and ends sessions.
create function {{schema}}.evict_here(p_names text[], p_silent_ms bigint, out evicted integer, out denied integer)
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_silent text[] := array(select {{schema}}.silent_here(p_names));
begin
    evicted := 0;
    denied := 0;
    if v_silent = '{}' then
        return;
    end if;
    perform pg_sleep(p_silent_ms / 1000.0);
    select count(*) filter (where pg_terminate_backend(split_part(s, ' ', 1)::integer)) into evicted
      from {{schema}}.silent_here(p_names) s where s = any (v_silent);
exception when insufficient_privilege then
    denied := 1;
end $$;

revoke all on all functions in schema {{schema}} from public;

-- The lock service on this database: see package pglock. A session is a process's; it owns and awaits resources.
--
-- Whoever changes a resource's owner or queue locks its row of "lock" first. An owner is replaced only if its holder
-- gave the resource up, or its session doesn't exist. A session that ends is deleted, once and for good, in a
-- transaction that locks no resource; so no transaction that does waits for a session's row, and none can deadlock.

insert into {{schema}}.migration (version, name) values (7, 'lock');

create table {{schema}}.lock_session (
    id         bigint      primary key, -- random, used once
    label      text        collate "C" not null,
    timeline   integer     not null,
    expires_at timestamptz not null
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
    void     boolean not null, -- the holder gave up while a call of its own was unanswered: should that arrive, it does nothing
    primary key (resource, id)
);
create index lock_waiter_session on {{schema}}.lock_waiter (session);

-- The first four functions are called by the others, which pin the settings.

-- lock_wake tells a session that something may have changed for a holder. Anyone may send such notifications, so
-- they say no more.
create function {{schema}}.lock_wake(p_session bigint, p_holder text) returns void
language plpgsql as $$
begin
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

-- lock_grant makes a holder the owner. Within an epoch its token is above all that were granted, and above the
-- fence's, which may come from another lock service.
create function {{schema}}.lock_grant(p_resource text, p_session bigint, p_holder text, p_value text) returns {{schema}}.lock
language plpgsql as $$
declare
    v_epoch bigint;
    k       {{schema}}.lock;
begin
    perform set_config('synchronous_commit', 'on', true), {{schema}}.raise_durability();
    select epoch into strict v_epoch from {{schema}}.setting where one;
    update {{schema}}.lock l
       set session = p_session, holder = p_holder, value = p_value, epoch = v_epoch,
           token = 1 + greatest(case when l.epoch = v_epoch then l.token else 0 end,
                                (select r.token from {{schema}}.resource r where r.name = p_resource and r.epoch = v_epoch))
     where l.resource = p_resource returning * into k;
    return k;
end $$;

-- lock_pass gives a resource without an owner, whose row is locked, to the first waiter whose session lives.
create function {{schema}}.lock_pass(p_resource text) returns {{schema}}.lock
language plpgsql as $$
declare
    k {{schema}}.lock;
    w {{schema}}.lock_waiter;
begin
    for w in select * from {{schema}}.lock_waiter where resource = p_resource and not void order by id loop
        delete from {{schema}}.lock_waiter where resource = p_resource and id = w.id;
        if exists (select from {{schema}}.lock_session where id = w.session and expires_at > clock_timestamp()) then
            k := {{schema}}.lock_grant(p_resource, w.session, w.holder, w.value);
            perform {{schema}}.lock_wake(w.session, w.holder);
            return k;
        end if;
    end loop;
    update {{schema}}.lock set session = null, holder = null, value = null where resource = p_resource returning * into k;
    return k;
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

-- lock_renew renews a session, and with it all that it owns and awaits. It returns 0 if the session is over, and -1
-- if the server isn't the one that it began on: a failover or a restore may have lost what was granted since.
create function {{schema}}.lock_renew(p_session bigint, p_ttl bigint) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_timeline integer := {{schema}}.timeline();
begin
    perform {{schema}}.raise_durability();
    update {{schema}}.lock_session set expires_at = clock_timestamp() + p_ttl * interval '1 millisecond'
     where id = p_session and expires_at > clock_timestamp() and timeline = v_timeline;
    if found then
        return 1;
    end if;
    return case when exists (select from {{schema}}.lock_session where id = p_session and timeline <> v_timeline) then -1 else 0 end;
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
              where k.session = any (v_ids) and w.session <> all (v_ids) and not w.void order by w.resource, w.id) o;
end $$;

-- lock_acquire acquires resources in their order, up to the first that another holder owns or awaits. For that one
-- it queues if p_wait. It may be repeated: a holder that owns or waits already goes on. It returns a row for each
-- resource that it acquired (its place, epoch, token, and whether another session waits for it) or took no further
-- (its place, the owner's holder, and whether its session has expired). There is none if the session is over.
create function {{schema}}.lock_acquire(p_session bigint, p_names text[], p_holders text[], p_value text, p_wait boolean)
returns table (o_place integer, o_epoch bigint, o_token bigint, o_contended boolean, o_owner text, o_expired boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_name   text;
    v_holder text;
    v_value  text := convert_from(decode(p_value, 'hex'), 'UTF8');
    k        {{schema}}.lock;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: lock_acquire needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    perform set_config('synchronous_commit', 'off', true); -- a lost place in the queue is taken again; a grant raises it
    for v_name in select n from (select convert_from(decode(h, 'hex'), 'UTF8') collate "C" as n from unnest(p_names) h) names order by n loop
        k := {{schema}}.lock_row(v_name);
    end loop;
    if not exists (select from {{schema}}.lock_session where id = p_session and expires_at > clock_timestamp()) then
        return;
    end if;
    for i in 1..cardinality(p_names) loop
        v_name := convert_from(decode(p_names[i], 'hex'), 'UTF8');
        v_holder := convert_from(decode(p_holders[i], 'hex'), 'UTF8');
        if exists (select from {{schema}}.lock_waiter where holder = v_holder and void) then
            return;
        end if;
        if cardinality(p_names) > 1 then
            select * into strict k from {{schema}}.lock where resource = v_name;
        end if;
        if k.session is not null and not exists (select from {{schema}}.lock_session where id = k.session) then
            k := {{schema}}.lock_pass(v_name);
        end if;
        if k.session is null then
            k := {{schema}}.lock_grant(v_name, p_session, v_holder, v_value);
        elsif k.holder <> v_holder and p_wait then
            insert into {{schema}}.lock_waiter (resource, session, holder, value, void) values (v_name, p_session, v_holder, v_value, false) on conflict do nothing;
            if k.session <> p_session and not exists (
                select from {{schema}}.lock_waiter where resource = v_name and session <> k.session and holder <> v_holder and not void
            ) then -- else the owner knows already
                perform {{schema}}.lock_wake(k.session, k.holder);
            end if;
        end if;
        o_place := i;
        if k.holder <> v_holder then
            o_epoch := null;
            o_token := null;
            o_owner := encode(convert_to(k.holder, 'UTF8'), 'hex');
            o_expired := (select expires_at <= clock_timestamp() from {{schema}}.lock_session where id = k.session);
            return next;
            return;
        end if;
        o_epoch := k.epoch;
        o_token := k.token;
        o_contended := exists (select from {{schema}}.lock_waiter where resource = v_name and session <> p_session and not void);
        return next;
    end loop;
end $$;

-- lock_release gives up what a holder owns or its place in the queue, and passes the resource on. With p_void a call
-- of lock_acquire that is still under way does nothing should it arrive.
create function {{schema}}.lock_release(p_session bigint, p_name text, p_holder text, p_void boolean) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_name   text := convert_from(decode(p_name, 'hex'), 'UTF8');
    v_holder text := convert_from(decode(p_holder, 'hex'), 'UTF8');
begin
    perform {{schema}}.raise_durability();
    if (select l.holder = v_holder from {{schema}}.lock_row(v_name) l) then
        perform {{schema}}.lock_pass(v_name);
    end if;
    delete from {{schema}}.lock_waiter where holder = v_holder and not void;
    if p_void and exists (select from {{schema}}.lock_session where id = p_session) then
        insert into {{schema}}.lock_waiter (resource, session, holder, void) values (v_name, p_session, v_holder, true) on conflict do nothing;
    end if;
end $$;

-- lock_look says what has become of holders that wait and, with p_contended, for what the session owns others wait
-- (place 0).
-- o_state is o: it owns; d: the owner's session is over; e: it has expired; l: the place is lost.
create function {{schema}}.lock_look(p_session bigint, p_names text[], p_holders text[], p_contended boolean)
returns table (o_place integer, o_state "char", o_epoch bigint, o_token bigint, o_contended boolean, o_holder text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_name   text;
    v_holder text;
    k        {{schema}}.lock;
    v_until  timestamptz;
begin
    for i in 1..cardinality(p_names) loop
        v_name := convert_from(decode(p_names[i], 'hex'), 'UTF8');
        v_holder := convert_from(decode(p_holders[i], 'hex'), 'UTF8');
        select * into k from {{schema}}.lock where resource = v_name;
        select expires_at into v_until from {{schema}}.lock_session where id = k.session;
        o_state := case
            when k.holder = v_holder then 'o'
            when not found then 'd'
            when v_until <= clock_timestamp() then 'e'
            when not exists (select from {{schema}}.lock_waiter where holder = v_holder) then 'l'
        end;
        if o_state is not null then
            o_place := i;
            o_epoch := k.epoch;
            o_token := k.token;
            o_contended := exists (select from {{schema}}.lock_waiter where resource = v_name and session <> p_session and not void);
            return next;
        end if;
    end loop;
    if not p_contended then
        return;
    end if;
    return query
    select distinct 0, null::"char", 0::bigint, 0::bigint, true, encode(convert_to(l.holder, 'UTF8'), 'hex')
      from {{schema}}.lock_waiter w join {{schema}}.lock l on l.resource = w.resource
      join {{schema}}.lock_session s on s.id = w.session
     where l.session = p_session and w.session <> p_session and not w.void and s.expires_at > clock_timestamp();
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

revoke all on all functions in schema {{schema}} from public;

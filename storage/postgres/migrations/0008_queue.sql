-- Taking rows of a table with their locks and claims, and retiring the resources of rows that are done: see package jobs.

insert into {{schema}}.migration (version, name) values (8, 'queue');

-- free reports whether no live session has a lock of the resource: a query for candidates passes over those that are
-- being worked on without locking their rows.
create function {{schema}}.free(p_resource text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return not exists (select from {{schema}}.lock k join {{schema}}.lock_session s on s.id = k.session where k.resource = p_resource);
end $$;

-- take gives back what the session owns of p_done, then grants it up to p_want resources, in their order, and claims
-- them. It passes over what is owned, awaited or just being moved, and waits for none of that. Its first row has the
-- place 0, unless the session is over or the call was given up; the others are of what it took: the place, the grant, and
-- the number and the position of the fence.
--
-- Called in the transaction that has locked the rows, which so are as the claim found them: whoever works on a row under
-- an earlier grant commits before the row is locked, or never.
create function {{schema}}.take(p_session bigint, p_call bigint, p_done text[], p_done_holders text[], p_names text[], p_holders text[], p_want integer, p_tx bigint, p_shard text)
returns table (o_place integer, o_epoch bigint, o_token bigint, o_fence integer, o_seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_name    text;
    v_places  integer[] := '{}';
    v_names   text[] := '{}';
    v_epochs  bigint[] := '{}';
    v_tokens  bigint[] := '{}';
    v_holders text[] := '{}';
    k         {{schema}}.lock;
    c         record;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: take needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    for c in select u.name, u.holder from unnest(p_done, p_done_holders) u (name, holder) order by convert_from(decode(u.name, 'hex'), 'UTF8') collate "C" loop
        perform {{schema}}.lock_release(p_session, 0, c.name, c.holder);
    end loop;
    perform {{schema}}.raise_durability();
    if not exists (select from {{schema}}.lock_session where id = p_session and expires_at > clock_timestamp() and first_call <= p_call) then
        return;
    end if;
    o_place := 0;
    return next;
    for i in 1..cardinality(p_names) loop
        exit when cardinality(v_names) >= p_want;
        v_name := convert_from(decode(p_names[i], 'hex'), 'UTF8');
        insert into {{schema}}.lock (resource) values (v_name) on conflict do nothing;
        select * into k from {{schema}}.lock where resource = v_name for update skip locked;
        continue when not found
            or exists (select from {{schema}}.lock_session where id = k.session)
            or exists (select from {{schema}}.lock_waiter where resource = v_name);
        k := {{schema}}.lock_grant(v_name, p_session, convert_from(decode(p_holders[i], 'hex'), 'UTF8'), null);
        continue when k.resource is null;
        v_places := v_places || i;
        v_names := v_names || p_names[i];
        v_epochs := v_epochs || k.epoch::bigint;
        v_tokens := v_tokens || k.token::bigint;
        v_holders := v_holders || p_holders[i];
    end loop;
    if v_names = '{}' then
        return;
    end if;
    select array_agg(u.place order by u.sorted), array_agg(u.name order by u.sorted), array_agg(u.epoch order by u.sorted),
           array_agg(u.token order by u.sorted), array_agg(u.holder order by u.sorted)
      into v_places, v_names, v_epochs, v_tokens, v_holders
      from (select *, convert_from(decode(n.name, 'hex'), 'UTF8') collate "C" as sorted
              from unnest(v_places, v_names, v_epochs, v_tokens, v_holders) n (place, name, epoch, token, holder)) u;
    for c in select * from {{schema}}.claim(v_names, v_epochs, v_tokens, v_holders, p_tx, p_shard) loop
        if c.o_state is not null then
            raise exception 'fencekit: take: a grant was rejected' using errcode = c.o_state, detail = convert_from(decode(c.o_detail, 'hex'), 'UTF8');
        end if;
        o_place := v_places[c.o_place];
        o_epoch := v_epochs[c.o_place];
        o_token := v_tokens[c.o_place];
        o_fence := c.o_resource;
        o_seq := c.o_seq;
        return next;
    end loop;
end $$;

-- retire deletes what is kept of up to p_limit resources of a queue that nobody owns or awaits, and that were claimed
-- last before the queue's "keep": fence, history and lock. It returns their number. It keeps those that have a result of
-- guard.Once, are on hold, or were pruned. A resource whose fence a transaction is moving stays; one whose transaction
-- is yet to move it is rejected from then on. Unless it found as many as p_limit, it does nothing for a while.
create function {{schema}}.retire(p_queue text, p_limit integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    q       {{schema}}.queue;
    v_ids   integer[];
    v_names text[];
    v_epoch bigint;
    v_token bigint;
    v_count integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: retire needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    select * into q from {{schema}}.queue where name = p_queue and swept_at < clock_timestamp() - least(keep / 10, '1 minute') for no key update skip locked;
    if not found then
        return 0;
    end if;
    lock table {{schema}}.hold, {{schema}}.checkpoint in share mode; -- behind holds and prunes that are under way
    with idle as (
        select r.id, r.name, r.epoch, r.token
          from {{schema}}.resource r
         where r.name > p_queue || '/' and r.name < p_queue || '0' -- the character behind the slash
           and r.claimed_at < clock_timestamp() - q.keep
           and not exists (select from {{schema}}.lock k join {{schema}}.lock_session s on s.id = k.session where k.resource = r.name) -- mutant: retire-takes-what-is-owned
           and not exists (select from {{schema}}.lock_waiter w where w.resource = r.name)
           and not exists (select from {{schema}}.hold h where h.name = r.name)
           and not exists (select from {{schema}}.operation o where o.resource = r.id)
           and not exists (select from {{schema}}.checkpoint c where c.resource = r.id)
         limit p_limit for update of r skip locked)
    select array_agg(id), array_agg(name), max(epoch), max(token) filter (where epoch = (select max(i.epoch) from idle i)), count(*)
      into v_ids, v_names, v_epoch, v_token, v_count from idle;
    update {{schema}}.queue
       set retired = retired + v_count,
           epoch = greatest(epoch, v_epoch),
           token = case when v_epoch > epoch then v_token when v_epoch = epoch then greatest(token, v_token) else token end,
           swept_at = case when v_count = p_limit then swept_at else clock_timestamp() end
     where name = p_queue;
    delete from {{schema}}.resource where id = any (v_ids);
    delete from {{schema}}.history where resource = any (v_ids);
    delete from {{schema}}.lock k
     where k.resource > p_queue || '/' and k.resource < p_queue || '0'
       and not exists (select from {{schema}}.lock_session s where s.id = k.session)
       and not exists (select from {{schema}}.lock_waiter w where w.resource = k.resource)
       and not exists (select from {{schema}}.resource r where r.name = k.resource);
    return v_count;
end $$;

revoke all on all functions in schema {{schema}} from public;

-- How long history is kept. What is left always verifies: see checkpoint.

insert into {{schema}}.migration (version, name) values (3, 'retention');

-- Where the history of a resource begins, if entries were pruned. Before "first" only the claim
-- of the grant that made the entry "first" is left, so that each entry that is left names
-- its grant. The hash before it lets the entries from "first" on be verified.
create table {{schema}}.checkpoint (
    resource  integer primary key,
    first     {{schema}}.position not null,
    hash      bytea   not null, -- of the entry at first - 1, which is gone
    pruned_at timestamptz not null
);

-- Resources whose history is kept as evidence, whatever the policy says.
create table {{schema}}.hold (
    name   {{schema}}.resource_name primary key,
    reason text not null,
    role   text not null default session_user,
    at     timestamptz not null default clock_timestamp(),
    constraint hold_reason check (octet_length(reason) between 1 and 1000)
);

-- first_kept returns the position of the oldest entry of a resource that has to stay, of the
-- entries from p_first to p_end, p_end if none of them has to stay. An entry stays
--   - if it is among the last p_entries of its resource, which at least the last one is;
--   - if it is younger than p_keep or an hour, so that an unknown outcome can be resolved;
--   - if the resource is on hold, or has no fence;
--   - if it is a claim under which a transaction runs, which eviction has to find.
create function {{schema}}.first_kept(p_resource integer, p_first bigint, p_end bigint, p_keep interval, p_entries bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_since timestamptz := clock_timestamp() - greatest(p_keep, '1 hour');
    v_end   bigint;
begin
    select least(p_end, r.seq - greatest(p_entries, 1) + 1) into v_end from {{schema}}.resource r
     where r.id = p_resource and not exists (select from {{schema}}.hold h where h.name = r.name);
    if v_end is null or v_end <= p_first then
        return p_first;
    end if;
    select least(v_end, min(e.seq)) into v_end from {{schema}}.history e
     where e.resource = p_resource and e.seq >= p_first and e.seq < v_end
       and e.at >= v_since;
    select least(v_end, min(c.seq)) into v_end
      from pg_locks l
      join {{schema}}.history c on c.resource = p_resource and c.kind = 'c' and c.seq < v_end and (c.token & 2147483647) = l.objid::bigint
     where l.locktype = 'advisory' and l.objsubid = 2 and l.classid::bigint = p_resource
       and l.database = (select d.oid from pg_database d where d.datname = current_database());
    return greatest(v_end, p_first);
end $$;

-- first_position returns where the history of a resource begins; null if it has none.
create function {{schema}}.first_position(p_resource integer) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return coalesce((select first from {{schema}}.checkpoint where resource = p_resource),
                    (select seq from {{schema}}.history where resource = p_resource order by seq limit 1));
end $$;

-- prunable returns the ranges of entries that may be pruned, of resources whose names don't
-- come before p_from and match p_pattern (as LIKE does), in the order of their names: up to
-- p_limit entries. It looks at 10,000 resources at most, and then returns an empty range of
-- the last one: the caller goes on from there. If p_keep or p_entries is null, or less than
-- the policy, the policy counts.
create function {{schema}}.prunable(p_from text, p_pattern text, p_keep interval, p_entries bigint, p_limit bigint)
returns table (o_resource integer, o_name text, o_first bigint, o_end bigint)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    s        {{schema}}.setting;
    v_left   bigint := p_limit;
    v_looked integer := 0;
begin
    select * into strict s from {{schema}}.setting where one;
    p_keep := greatest(p_keep, s.history_keep);
    p_entries := greatest(p_entries, s.history_keep_entries);
    if p_keep is null then
        return;
    end if;
    for o_resource, o_name in select r.id, r.name from {{schema}}.resource r where r.name >= p_from and r.name like p_pattern order by r.name loop
        v_looked := v_looked + 1;
        o_first := coalesce({{schema}}.first_position(o_resource), 0);
        o_end := {{schema}}.first_kept(o_resource, o_first, o_first + v_left, p_keep, p_entries);
        if o_end > o_first or v_looked = 10000 then
            return next;
            v_left := v_left - (o_end - o_first);
            exit when v_left <= 0 or v_looked = 10000;
        end if;
    end loop;
end $$;

-- prune deletes the entries of each resource before p_ends, and returns how many those were.
-- It takes no lock that a guarded transaction takes. The triggers below decide whether it
-- may. Of two prunes of one resource the second waits, and finds the entries gone.
create function {{schema}}.prune(p_resources integer[], p_ends bigint[]) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_count bigint := 0;
    v_n     bigint;
begin
    for i in 1..cardinality(p_resources) loop
        insert into {{schema}}.checkpoint as c (resource, first, hash, pruned_at)
        select p_resources[i], p_ends[i], e.hash, clock_timestamp() from {{schema}}.history e where e.resource = p_resources[i] and e.seq = p_ends[i] - 1
            on conflict (resource) do update set first = excluded.first, hash = excluded.hash, pruned_at = excluded.pruned_at
         where c.first < excluded.first;
        delete from {{schema}}.history where resource = p_resources[i] and seq < p_ends[i]
           and seq <> (select e.claim from {{schema}}.history e where e.resource = p_resources[i] and e.seq = p_ends[i]);
        get diagnostics v_n = row_count;
        v_count := v_count + v_n;
    end loop;
    return v_count;
end $$;

-- prune_by_policy prunes up to p_limit entries, of resources whose names don't come before
-- p_from, and as many rejections, by the owner's policy. It returns how many entries and
-- rejections those were, and the name from which to go on, null at the end. A call that finds
-- another one running prunes nothing.
create function {{schema}}.prune_by_policy(p_from text, p_limit bigint, out o_entries bigint, out o_rejections bigint, out o_next text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_keep interval;
    v_ids  integer[];
    v_ends bigint[];
    v_full boolean;
begin
    o_entries := 0;
    o_rejections := 0;
    select history_keep into strict v_keep from {{schema}}.setting where one;
    if v_keep is null or not pg_try_advisory_xact_lock(('{{schema}}.checkpoint'::regclass::oid::bigint & 2147483647)::integer, 0) then
        return;
    end if;
    select array_agg(p.o_resource) filter (where p.o_end > p.o_first), array_agg(p.o_end) filter (where p.o_end > p.o_first), max(p.o_name),
           sum(p.o_end - p.o_first) >= p_limit or bool_or(p.o_end = p.o_first)
      into v_ids, v_ends, o_next, v_full
      from {{schema}}.prunable(p_from, '%', null, null, p_limit) p;
    if v_ids is not null then
        o_entries := {{schema}}.prune(v_ids, v_ends);
    end if;
    if v_full is not true then
        o_next := null;
    end if;
    o_rejections := {{schema}}.prune_rejections('%', v_keep, p_limit, false);
end $$;

-- prune_rejections deletes up to p_limit rejections that came last before p_keep ago, at least
-- an hour, of resources that match p_pattern and aren't on hold; null keeps all. It returns
-- how many those were; if p_dry it only counts them, without a limit.
create function {{schema}}.prune_rejections(p_pattern text, p_keep interval, p_limit bigint, p_dry boolean) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_ids bigint[];
begin
    select array_agg(o.id) into v_ids
      from (select r.id from {{schema}}.rejection r
             where r.last_at < clock_timestamp() - greatest(p_keep, case when p_keep is not null then interval '1 hour' end) and r.resource like p_pattern
               and not exists (select from {{schema}}.hold h where h.name = r.resource)
             limit case when not p_dry then p_limit end) o;
    if not p_dry then
        delete from {{schema}}.rejection where id = any (v_ids);
    end if;
    return coalesce(cardinality(v_ids), 0);
end $$;

-- A checkpoint only advances, and only over entries that may go by the owner's policy. That
-- binds the owner too.
create function {{schema}}.protect_checkpoint() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    s       {{schema}}.setting;
    v_first bigint;
begin
    if tg_op in ('DELETE', 'TRUNCATE') then
        raise exception 'fencekit: % of %.% is not allowed: without it the history that is left can''t be verified', lower(tg_op), tg_table_schema, tg_table_name
            using errcode = 'ZF009';
    end if;
    select * into strict s from {{schema}}.setting where one;
    if tg_op = 'UPDATE' then
        v_first := old.first;
    else
        select seq into v_first from {{schema}}.history where resource = new.resource order by seq limit 1;
    end if;
    if ((tg_op = 'INSERT' or new.resource = old.resource)
        and {{schema}}.first_kept(new.resource, v_first, new.first, s.history_keep, s.history_keep_entries) = new.first
        and new.hash = (select hash from {{schema}}.history where resource = new.resource and seq = new.first - 1)) is not true then
        raise exception 'fencekit: entries from % to % of resource % may not be pruned: they are on hold, needed, or within the policy (history_keep, history_keep_entries)',
            v_first, new.first - 1, new.resource using errcode = 'ZF009';
    end if;
    return new;
end $$;

create trigger protect_checkpoint before insert or update on {{schema}}.checkpoint
    for each row execute function {{schema}}.protect_checkpoint();
alter table {{schema}}.checkpoint enable always trigger protect_checkpoint;
create trigger protect_checkpoint_rows before delete or truncate on {{schema}}.checkpoint
    for each statement execute function {{schema}}.protect_checkpoint();
alter table {{schema}}.checkpoint enable always trigger protect_checkpoint_rows;

-- Only entries before a checkpoint are deleted, and never the claim of the first entry that is
-- kept.
create function {{schema}}.protect_kept_history() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from gone g
       left join {{schema}}.checkpoint c on c.resource = g.resource
       left join {{schema}}.history e on e.resource = c.resource and e.seq = c.first
      where (g.seq < c.first and g.seq <> e.claim) is not true;
    if found then
        raise exception 'fencekit: delete of %.% is not allowed but by prune: what is left must verify', tg_table_schema, tg_table_name
            using errcode = 'ZF009';
    end if;
    return null;
end $$;

create trigger protect_kept_history after delete on {{schema}}.history referencing old table as gone
    for each statement execute function {{schema}}.protect_kept_history();
alter table {{schema}}.history enable always trigger protect_kept_history;

revoke all on all functions in schema {{schema}} from public;

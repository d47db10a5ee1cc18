-- Pruning of the history. What remains can always be verified: see checkpoint.

insert into {{schema}}.migration (version, name) values (3, 'retention');

-- Where the history of a pruned resource begins. Of the entries before "first" only the claim of the grant that
-- made the entry "first" may remain, so that each remaining entry has its claim. With "hash" the entries from
-- "first" on can be verified.
create table {{schema}}.checkpoint (
    resource  integer primary key,
    first     {{schema}}.position not null,
    hash      bytea   not null, -- of the entry before first
    pruned_at timestamptz not null,
    -- The latest time of an entry before "first", not always that of the last one: the clock may have gone back.
    -- Without the entries it is what is given, or unknown.
    latest    timestamptz not null default 'infinity'
);

-- Resources whose history is kept as evidence.
create table {{schema}}.hold (
    name   {{schema}}.resource_name primary key,
    reason text not null,
    role   text not null default session_user,
    at     timestamptz not null default clock_timestamp(),
    constraint hold_reason check (octet_length(reason) between 1 and 1000)
);

-- Autovacuum makes the space of pruned rows reusable. By default it starts when a fifth of the table is dead; a
-- twentieth keeps the dead space of a long history small. Old rows are close together, so each vacuum visits few
-- pages. It doesn't truncate the tables, which would block guarded transactions. Rows of the other tables are
-- updated within their pages (HOT).
alter table {{schema}}.history set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05, vacuum_truncate = off);
alter table {{schema}}.operation set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05, vacuum_truncate = off);

-- first_kept returns the position of the oldest entry of a resource that has to stay, of the
-- entries from p_first to p_end, p_end if none of them has to stay. An entry stays
--   - if it is among the last p_entries of its resource, which at least the last one is;
--   - if it is younger than p_keep or an hour, so that an unknown outcome can be resolved;
--   - if the resource is on hold, or has no fence.
create function {{schema}}.first_kept(p_resource integer, p_first bigint, p_end bigint, p_keep interval, p_entries bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set timezone = 'UTC' set enable_seqscan = off set jit = off as $$
declare
    v_since timestamptz := clock_timestamp() - greatest(p_keep, '1 hour'); -- mutant: prune-takes-young-entries
    v_end   bigint;
begin
    select least(p_end, r.seq - greatest(p_entries, 1) + 1) into v_end from {{schema}}.resource r
     where r.id = p_resource and not exists (select from {{schema}}.hold h where h.name = r.name);
    if v_end is null or v_end <= p_first then
        return p_first;
    end if;
    return coalesce((select e.seq from {{schema}}.history e
                      where e.resource = p_resource and e.seq >= p_first and e.seq < v_end and e.at >= v_since
                      order by e.seq limit 1), v_end);
end $$;

-- claim_at returns the claim of the grant that made an entry; null if the entry isn't there.
create function {{schema}}.claim_at(p_resource integer, p_seq bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return (select claim from {{schema}}.history where resource = p_resource and seq = p_seq);
end $$;

-- first_in_use returns the highest position up to p_end to which a prune may go without deleting a claim under
-- which a transaction runs, by which eviction finds that.
create function {{schema}}.first_in_use(p_resource integer, p_name text, p_first bigint, p_end bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_claim bigint := {{schema}}.claim_at(p_resource, p_first);
begin
    if v_claim = {{schema}}.claim_at(p_resource, p_end) then
        return p_end; -- the only claim so far, which stays
    end if;
    return least(p_end, (
        select min(n.seq) - 1
          from pg_locks l
          join {{schema}}.history c on c.name = p_name and c.kind = 'c' and c.seq >= v_claim and c.seq < p_end and (c.token & 2147483647) = l.objid::bigint -- mutant: prune-takes-claims-of-running-transactions
         cross join lateral (select h.seq from {{schema}}.history h where h.name = p_name and h.kind = 'c' and h.seq > c.seq order by h.seq limit 1) n
         where l.locktype = 'advisory' and l.objsubid = 2 and l.classid::bigint = p_resource
           and l.database = (select d.oid from pg_database d where d.datname = current_database())));
end $$;

-- first_position returns where the history of a resource begins; null if it has none.
create function {{schema}}.first_position(p_resource integer) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return coalesce((select first from {{schema}}.checkpoint where resource = p_resource),
                    (select seq from {{schema}}.history where resource = p_resource order by seq limit 1));
end $$;

-- has_gap reports whether an entry from p_first to p_end is missing, or one before p_first that no prune deleted,
-- or the claim that a prune left there. p_first is where the history was found to begin. It is null if another
-- prune was at work since.
create function {{schema}}.has_gap(p_resource integer, p_first bigint, p_end bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_claim bigint := {{schema}}.claim_at(p_resource, p_first);
    v_gap   boolean;
begin
    v_gap := p_first <> 1 and not exists (select from {{schema}}.checkpoint where resource = p_resource)
          or v_claim < p_first and {{schema}}.claim_at(p_resource, v_claim) is null
          or p_end - p_first + 1 <> (select count(*) from {{schema}}.history where resource = p_resource and seq between p_first and p_end);
    return case when coalesce({{schema}}.first_position(p_resource), 0) = p_first then coalesce(v_gap, true) end;
end $$;

-- prunable returns ranges of entries that may be pruned, of resources whose names don't come before p_from and
-- match p_pattern (as LIKE does), in the order of their names: up to p_limit entries of up to 10,000 resources. If
-- there may be more, its last row is an empty range, of the resource to go on from. If p_keep or p_entries is null,
-- or less than the policy, the policy counts. A resource with a gap has a row without o_end: after a prune the gap
-- could no longer be found. The policy stays until the transaction ends: SetPolicy waits.
create function {{schema}}.prunable(p_from text, p_pattern text, p_keep interval, p_entries bigint, p_limit bigint)
returns table (o_resource integer, o_name text, o_first bigint, o_end bigint)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    s        {{schema}}.setting;
    v_seq    bigint;
    v_left   bigint := p_limit;
    v_looked integer := 0;
    v_more   boolean := false;
    v_gap    boolean;
begin
    select * into strict s from {{schema}}.setting where one for key share;
    p_keep := greatest(p_keep, s.history_keep);
    p_entries := greatest(p_entries, s.history_keep_entries);
    if p_keep is null then
        return;
    end if;
    for o_resource, o_name, v_seq in
        select r.id, r.name, r.seq from {{schema}}.resource r where r.name >= p_from and r.name like p_pattern order by r.name
    loop
        v_more := v_looked = 10000;
        exit when v_more;
        v_looked := v_looked + 1;
        continue when v_seq <= p_entries;
        o_first := coalesce({{schema}}.first_position(o_resource), 0);
        o_end := {{schema}}.first_kept(o_resource, o_first, o_first + v_left, p_keep, p_entries);
        if o_end > o_first then
            o_end := {{schema}}.first_in_use(o_resource, o_name, o_first, o_end);
        end if;
        if o_end > o_first then
            v_gap := {{schema}}.has_gap(o_resource, o_first, o_end);
            continue when v_gap is null;
            if v_gap then
                o_end := null;
            else
                v_left := v_left - (o_end - o_first);
            end if;
            return next;
        end if;
        v_more := v_left <= 0;
        exit when v_more;
    end loop;
    if v_more then
        o_first := 0;
        o_end := 0;
        return next;
    end if;
end $$;

-- prune deletes the entries of each resource before p_ends, and returns their number. It takes no lock that a
-- guarded transaction takes. The triggers below decide whether it may delete. Two prunes of one resource are
-- serialized, and the second deletes nothing. A new hold waits for a running prune.
create function {{schema}}.prune(p_resources integer[], p_ends bigint[]) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_count bigint := 0;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'fencekit: prune needs READ COMMITTED' using errcode = 'ZF008';
    end if;
    lock table {{schema}}.hold in share mode;
    for i in 1..cardinality(p_resources) loop
        perform from {{schema}}.resource r join {{schema}}.hold h on h.name = r.name where r.id = p_resources[i];
        if not found then
            v_count := v_count + {{schema}}.prune_one(p_resources[i], p_ends[i]);
        end if;
    end loop;
    return v_count;
end $$;

-- prune_one is prune for one resource. It looks at no entry that an earlier prune has deleted: while an old
-- snapshot is held, as by pg_dump, each look would cost as much as the entry did.
create function {{schema}}.prune_one(p_resource integer, p_end bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_hash   bytea := (select hash from {{schema}}.history where resource = p_resource and seq = p_end - 1);
    v_claim  bigint := {{schema}}.claim_at(p_resource, p_end);
    v_first  bigint;
    v_before bigint; -- the claim of the entry v_first, which may be all that is left before
    v_count  bigint;
    v_n      bigint;
begin
    -- One after another: before the first prune there is no checkpoint to lock.
    perform pg_advisory_xact_lock(('{{schema}}.checkpoint'::regclass::oid::bigint & 2147483647)::integer, p_resource);
    select first into v_first from {{schema}}.checkpoint where resource = p_resource;
    if found then
        update {{schema}}.checkpoint set first = p_end, hash = v_hash, pruned_at = clock_timestamp() where resource = p_resource and first < p_end;
    else
        v_first := {{schema}}.first_position(p_resource);
        insert into {{schema}}.checkpoint (resource, first, hash, pruned_at) values (p_resource, p_end, v_hash, clock_timestamp());
    end if;
    if not found then
        return 0; -- another prune was faster
    end if;
    v_before := {{schema}}.claim_at(p_resource, v_first);
    delete from {{schema}}.history where resource = p_resource and seq >= v_first and seq < p_end and seq <> v_claim; -- mutant: prune-takes-the-claim-of-what-is-left
    get diagnostics v_count = row_count;
    if v_before < v_first and v_before <> v_claim then
        delete from {{schema}}.history where resource = p_resource and seq = v_before;
        get diagnostics v_n = row_count;
    end if;
    return v_count + coalesce(v_n, 0);
end $$;

-- entries_to_prune returns the entries of a range in order, after the claim that an earlier prune may have left
-- before it.
create function {{schema}}.entries_to_prune(p_resource integer, p_first bigint, p_end bigint) returns setof {{schema}}.history
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_before bigint := {{schema}}.claim_at(p_resource, p_first);
begin
    return query select * from {{schema}}.history where resource = p_resource and seq = v_before and seq < p_first;
    return query select * from {{schema}}.history where resource = p_resource and seq >= p_first and seq < p_end order by seq;
end $$;

-- count_pruned returns how many entries a prune of ranges would delete, with the claims before them, but without
-- the claim of what is left.
create function {{schema}}.count_pruned(p_resources integer[], p_firsts bigint[], p_ends bigint[]) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    return (select sum(p_end - p_first + ({{schema}}.claim_at(p_resource, p_first) < p_first)::integer - ({{schema}}.claim_at(p_resource, p_end) < p_end)::integer)
              from unnest(p_resources, p_firsts, p_ends) r (p_resource, p_first, p_end));
end $$;

-- prune_by_policy prunes up to p_limit entries by the owner's policy, of resources whose names don't come before
-- p_from; after the last of them as many rejections. It returns how many those were, the name to go on from, null
-- at the end, and the names of resources with gaps, which it left as they are. A call that finds another one
-- running prunes nothing.
create function {{schema}}.prune_by_policy(p_from text, p_limit bigint, out o_entries bigint, out o_rejections bigint, out o_next text, out o_gaps text[])
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_keep interval;
    v_ids  integer[];
    v_ends bigint[];
begin
    o_entries := 0;
    o_rejections := 0;
    select history_keep into strict v_keep from {{schema}}.setting where one for key share;
    if v_keep is null or not pg_try_advisory_xact_lock(('{{schema}}.checkpoint'::regclass::oid::bigint & 2147483647)::integer, 0) then
        return;
    end if;
    select array_agg(p.o_resource) filter (where p.o_end > p.o_first), array_agg(p.o_end) filter (where p.o_end > p.o_first),
           max(p.o_name) filter (where p.o_end = p.o_first), array_agg(p.o_name) filter (where p.o_end is null)
      into v_ids, v_ends, o_next, o_gaps
      from {{schema}}.prunable(p_from, '%', null, null, p_limit) p;
    if v_ids is not null then
        o_entries := {{schema}}.prune(v_ids, v_ends);
    end if;
    if o_next is null then
        o_rejections := {{schema}}.prune_rejections('%', v_keep, p_limit, false);
        if o_rejections = p_limit then
            o_next := p_from;
        end if;
    end if;
end $$;

-- prune_rejections deletes up to p_limit rejections that last came before p_keep ago, at least an hour, of
-- resources that match p_pattern and aren't on hold; null keeps all. It returns their number; if p_dry it only
-- counts them, without a limit. A rejection that is just being counted again stays.
create function {{schema}}.prune_rejections(p_pattern text, p_keep interval, p_limit bigint, p_dry boolean) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set timezone = 'UTC' set jit = off as $$
declare
    v_before timestamptz := clock_timestamp() - greatest(p_keep, case when p_keep is not null then interval '1 hour' end);
    v_count  bigint;
begin
    if p_dry then
        return (select count(*) from {{schema}}.rejection r where r.last_at < v_before and r.resource like p_pattern
                   and not exists (select from {{schema}}.hold h where h.name = r.resource));
    end if;
    lock table {{schema}}.hold in share mode;
    delete from {{schema}}.rejection where id = any (array(
        select r.id from {{schema}}.rejection r where r.last_at < v_before and r.resource like p_pattern
           and not exists (select from {{schema}}.hold h where h.name = r.resource)
         limit p_limit for update of r skip locked));
    get diagnostics v_count = row_count;
    return v_count;
end $$;

-- A checkpoint only advances, and only over entries that the policy allows to be deleted; without history_keep,
-- over entries older than an hour. That binds the owner too. The time of these entries is read from them. A new
-- checkpoint without entries before it comes from a restore.
create function {{schema}}.protect_checkpoint() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    s       {{schema}}.setting;
    v_claim bigint := {{schema}}.claim_at(new.resource, new.first);
    v_first bigint;
begin
    if tg_op in ('DELETE', 'TRUNCATE') then
        raise exception 'fencekit: % of %.% is not allowed: without it the history that is left can''t be verified', lower(tg_op), tg_table_schema, tg_table_name
            using errcode = 'ZF009';
    end if;
    if tg_op = 'UPDATE' then
        v_first := old.first;
    else
        select min(seq) into v_first from {{schema}}.history
         where resource = new.resource and seq < new.first and seq is distinct from v_claim;
        if v_first is null then
            return new;
        end if;
    end if;
    select * into strict s from {{schema}}.setting where one;
    if ((tg_op = 'INSERT' or new.resource = old.resource)
        and {{schema}}.first_kept(new.resource, v_first, new.first, s.history_keep, s.history_keep_entries) = new.first
        and new.hash = (select hash from {{schema}}.history where resource = new.resource and seq = new.first - 1)) is not true then
        raise exception 'fencekit: entries from % to % of resource % may not be pruned: they are on hold, needed, or within the policy (history_keep, history_keep_entries)',
            v_first, new.first - 1, new.resource using errcode = 'ZF009';
    end if;
    new.latest := (select max(at) from {{schema}}.history where resource = new.resource and seq >= v_first and seq < new.first);
    if tg_op = 'UPDATE' then
        new.latest := greatest(old.latest, new.latest);
    end if;
    return new;
end $$;

create trigger protect_checkpoint before insert or update on {{schema}}.checkpoint
    for each row execute function {{schema}}.protect_checkpoint();
alter table {{schema}}.checkpoint enable always trigger protect_checkpoint;
create trigger protect_checkpoint_rows before delete or truncate on {{schema}}.checkpoint
    for each statement execute function {{schema}}.protect_checkpoint();
alter table {{schema}}.checkpoint enable always trigger protect_checkpoint_rows;

-- Only entries before a checkpoint are deleted, and never the claim of the first entry that is kept; or those of a
-- resource that was retired.
create function {{schema}}.protect_kept_history() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    perform from (select resource, array_agg(seq) as seqs, max(seq) as last from gone group by resource) g
       left join {{schema}}.checkpoint c on c.resource = g.resource
       left join {{schema}}.history e on e.resource = c.resource and e.seq = c.first
      where (g.last < c.first and e.claim <> all (g.seqs)) is not true
        and (exists (select from {{schema}}.resource r where r.id = g.resource)
             or exists (select from {{schema}}.history h where h.resource = g.resource)
             or exists (select from gone o where o.resource = g.resource and o.kind = 'c' and {{schema}}.retired(o.name, o.epoch, o.token) is null));
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

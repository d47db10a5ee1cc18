-- Protected tables: triggers on the user's tables that reject, or only record, writes outside guarded transactions
-- of the rows' own resources. See docs/protocol-features.md, "Protected tables".

insert into {{schema}}.migration (version, name) values (6, 'protect');

-- Protected tables. The number is part of the name of the trigger function: it survives a dump and restore, which
-- an oid doesn't.
create table {{schema}}.protection (
    id       integer  generated always as identity primary key,
    relation regclass not null unique,
    name     text     not null, -- of the table when it was protected
    resource text     not null, -- the expression
    audit    boolean  not null, -- record, and don't reject
    at       timestamptz not null default clock_timestamp()
);

-- What the present transaction of each backend has written to protected tables, and has to seal; of no use after
-- the transaction. A backend has one row, which it updates in place: to insert and delete one each time would cost
-- more. A prune removes the rows of ended backends. Rows from a dump belong to no transaction, and are ignored.
-- With a fillfactor, each access would prune the page.
create unlogged table {{schema}}.pending_write (
    pid      integer primary key,
    xid      xid8    not null, -- the rest is of this transaction
    round    bigint  not null, -- each change of it queues the check again
    fires    integer not null, -- how often the check has run in one message
    at       timestamptz not null, -- of that message
    writes   text[]  collate "C" not null, -- what the seal has to cover: NUMBER RESOURCE, see handle_unguarded
    recorded text[]  collate "C" not null  -- what was recorded in unguarded_write
);

-- forget_writes removes the rows of ended backends, except one that a prepared transaction has written. A new
-- backend with the number of an ended one waits for it, and at stricter levels than READ COMMITTED may get 40001.
create function {{schema}}.forget_writes() returns void
language sql volatile set search_path = pg_catalog, pg_temp
begin atomic
    delete from {{schema}}.pending_write where pid = any (array(
        select w.pid from {{schema}}.pending_write w
         where not exists (select from pg_stat_get_activity(null) a where a.pid = w.pid) for update skip locked));
end;

-- Writes that audit mode has let through. Rows are only appended, so that no transaction waits for another: at most
-- 101 by one transaction, and none when the table has 16 MB.
create table {{schema}}.unguarded_write (
    id       bigint   generated always as identity primary key, -- so that a publication of all tables may delete
    relation regclass not null,
    resource text     collate "C", -- null: the row has none, or there are too many
    kind     text     not null,
    role     text     not null default session_user,
    application text  not null default current_setting('application_name'),
    xid      xid8     not null default pg_current_xact_id(),
    at       timestamptz not null default clock_timestamp()
);

-- record_unguarded never fails, but for a cancellation: what it can't record it reports in the server's log.
create function {{schema}}.record_unguarded(p_relation regclass, p_resource text, p_kind text, p_entry text) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_xid  xid8 := pg_current_xact_id_if_assigned();
    v_done text[];
begin
    select recorded into v_done from {{schema}}.pending_write where pid = pg_backend_pid() and xid = v_xid and age(xmin) <= 0;
    if p_entry = any (v_done) or cardinality(v_done) > 100 then
        return;
    elsif cardinality(v_done) = 100 then
        p_resource := null;
        p_kind := 'more';
    end if;
    if pg_relation_size('{{schema}}.unguarded_write') >= 16777216 then
        raise log 'fencekit: % of % for resource % is not recorded: %.unguarded_write is full; truncate it', p_kind, p_relation, p_resource, '{{schema}}';
        return;
    end if;
    insert into {{schema}}.unguarded_write (relation, resource, kind) values (p_relation, p_resource, p_kind);
    if v_done is not null then
        update {{schema}}.pending_write set recorded = recorded || p_entry where pid = pg_backend_pid();
    else
        -- A prepared transaction of this backend's may have the row. Then nothing is noted, and a write may be
        -- recorded twice.
        update {{schema}}.pending_write set xid = pg_current_xact_id(), writes = '{}', recorded = array[p_entry]
         where pid = any (array(select pid from {{schema}}.pending_write where pid = pg_backend_pid() for no key update skip locked));
        if not found and not exists (select from pg_prepared_xact()) then
            insert into {{schema}}.pending_write values (pg_backend_pid(), pg_current_xact_id(), 0, 0, statement_timestamp(), '{}', array[p_entry]);
        end if;
    end if;
exception when others then
    raise log 'fencekit: % of % for resource % is not recorded: %', p_kind, p_relation, p_resource, sqlerrm;
end $$;

-- handle_unguarded rejects a write, or in audit mode records it. A negative p_protection means audit mode: the
-- transaction's snapshot may be too old to show the mode, or the protection at all.
create function {{schema}}.handle_unguarded(p_protection integer, p_relation regclass, p_resource text, p_kind text, p_why text) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    p {{schema}}.protection;
begin
    select * into p from {{schema}}.protection where id = abs(p_protection);
    if p_protection < 0 then
        perform {{schema}}.record_unguarded(p_relation, p_resource, p_kind, concat_ws(' ', p_protection, p_resource));
        return;
    end if;
    perform set_config('client_encoding', 'UTF8', true);
    raise exception 'fencekit: protected table %: % rejected: %', p_relation, p_kind, p_why using errcode = 'ZF015', hint = case
        when p.resource is null then 'The table was protected after the transaction''s snapshot: begin another. Or its protection is not recorded, as while a dump is restored: '
                                  || 'restore "protection", or drop the triggers.'
        when p_kind = 'truncate' then 'Delete each row in a guarded transaction (guard.Do) of its own resource, the value of: ' || p.resource
        when p_kind = 'commit' then 'Leave COMMIT to guard.Do, which seals first.'
        else 'Write the row in a guarded transaction (guard.Do) of its own resource, the value of: ' || p.resource end;
end $$;

-- note_write notes that this transaction writes a row of a resource, so that it can commit only with a seal for it.
-- It rejects resources that the begin check has not named. A forged setting gets past that, but not past the check
-- at COMMIT. Its caller, a trigger function, pins the settings. It returns something so that the call is an
-- assignment, which PL/pgSQL evaluates without a query.
create function {{schema}}.note_write(p_protection integer, p_relation regclass, p_resource text, p_kind text) returns text
language plpgsql as $$
declare
    v_xid   xid8 := pg_current_xact_id();
    v_entry text := p_protection || ' ' || p_resource;
    w       {{schema}}.pending_write;
begin
    if strpos(current_setting('fencekit.guarded', true), E'\n' || p_resource || E'\n') > 0 is not true then
        perform {{schema}}.handle_unguarded(p_protection, p_relation, p_resource, lower(p_kind), case
            when p_resource is null then 'the resource of the row is null'
            else format('the transaction is not guarded for resource %s', p_resource) end);
        return p_resource;
    end if;
    update {{schema}}.pending_write
       set xid = v_xid, round = round + 1, fires = 0, at = statement_timestamp(), writes = array[v_entry], recorded = '{}'
     where pid = pg_backend_pid() and (xid <> v_xid or age(xmin) > 0); -- another transaction wrote it, of this or another cluster
    if found then
        return p_resource;
    end if;
    select * into w from {{schema}}.pending_write where pid = pg_backend_pid();
    if not found then
        insert into {{schema}}.pending_write values (pg_backend_pid(), v_xid, 0, 0, statement_timestamp(), array[v_entry], '{}');
    elsif v_entry = any (w.writes) is not true then
        update {{schema}}.pending_write set round = round + 1, fires = 0, at = statement_timestamp(), writes = writes || v_entry where pid = w.pid;
    end if;
    return p_resource;
end $$;

-- check_writes is a deferred trigger: a transaction commits only if it has sealed each resource that it has noted.
-- SET CONSTRAINTS may run it early, which it can't distinguish from COMMIT: so it queues itself again until the
-- fences are sealed, or until it has run a thousand times within one message. Behind a seal it decides at once,
-- since a transaction has one seal for all its resources, and makes itself read only. In a read-only transaction it
-- decides at once too: that can't be sealed any more.
--
-- A fence is sealed by this transaction if its row has this transaction's id and was written by it: the id alone
-- may come from a cluster that the row was restored from. If a seal is rolled back to a savepoint, so is each run
-- of this trigger that has seen it: the check is pending again.
--
-- It names the schema of each operator, since pinning its search_path would take a fifth of its time.
create function {{schema}}.check_writes() returns trigger
language plpgsql security definer set enable_seqscan = off as $$
declare
    v_last     pg_catalog.bool := new.fires operator(pg_catalog.>=) 1000 or pg_catalog.current_setting('transaction_read_only') operator(pg_catalog.=) 'on'
        or coalesce(pg_catalog.current_setting('fencekit.sealed', true) operator(pg_catalog.=) new.xid::pg_catalog.text, false);
    v_entry    pg_catalog.text;
    v_resource pg_catalog.text;
begin
    if new.xid operator(pg_catalog.<>) pg_catalog.pg_current_xact_id() then
        return null; -- restored from a dump
    end if;
    foreach v_entry in array new.writes loop
        v_resource := pg_catalog.substr(v_entry, pg_catalog.strpos(v_entry, ' ') operator(pg_catalog.+) 1);
        perform from {{schema}}.resource
          where name operator(pg_catalog.=) v_resource and sealed operator(pg_catalog.=) pg_catalog.pg_current_xact_id()
            and pg_catalog.age(xmin) operator(pg_catalog.<=) 0;
        if not found and v_last then
            perform {{schema}}.handle_unguarded(n, relation, v_resource, 'commit',
                    pg_catalog.format('the transaction wrote rows of resource %s and has no seal for it', v_resource))
               from (select pg_catalog.split_part(v_entry, ' ', 1)::pg_catalog.int4) noted (n)
               left join {{schema}}.protection on id operator(pg_catalog.=) pg_catalog.abs(n);
        elsif not found then
            set constraints {{schema}}.pending_write_sealed deferred;
            -- If the round has changed since, a later check is pending. A record changes the row alone.
            update {{schema}}.pending_write
               set round = round operator(pg_catalog.+) 1, at = pg_catalog.statement_timestamp(),
                   fires = case when at operator(pg_catalog.=) pg_catalog.statement_timestamp() then fires operator(pg_catalog.+) 1 else 1 end
             where pid operator(pg_catalog.=) new.pid and round operator(pg_catalog.=) new.round;
            return null;
        end if;
    end loop;
    return null;
end $$;

create constraint trigger pending_write_sealed after insert or update of round on {{schema}}.pending_write
    deferrable initially deferred for each row execute function {{schema}}.check_writes();
alter table {{schema}}.pending_write enable always trigger pending_write_sealed;

-- resource_block is the block of PL/pgSQL that evaluates the expression for a row, a variable, without a query.
-- A virtual generated column is null in a trigger's row, so the expression doesn't find it.
create function {{schema}}.resource_block(p_relation regclass, p_resource text, p_row text) returns text
language sql volatile set search_path = pg_catalog, pg_temp
return format($body$
        declare%s
        begin
            "resource of row" := (
%s
            )::pg_catalog.text;
        end;$body$,
    (select coalesce(string_agg(format(E'\n            %I %s := %s.%1$I;', a.attname, format_type(a.atttypid, a.atttypmod), p_row), '' order by a.attname in ('new', 'old'), a.attnum), '')
       from pg_attribute a
      where a.attrelid = p_relation and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v' and strpos(lower(p_resource), lower(replace(a.attname, '"', '""'))) > 0), -- mutant: protect-takes-a-column-that-triggers-do-not-see
    p_resource);

-- trigger_branch is the part of a protected table's trigger function for one of the rows old and new.
create function {{schema}}.trigger_branch(p {{schema}}.protection, p_row text, p_unless text, p_if text) returns text
language sql volatile set search_path = pg_catalog, pg_temp
return format($body$
    if tg_op <> %L then%s
        if %s then
            "resource of row" := %s.note_write(%s, tg_relid, "resource of row", tg_op);
        end if;
    end if;$body$, p_unless, {{schema}}.resource_block(p.relation, p.resource, p_row), p_if, '{{schema}}', case when p.audit then -p.id else p.id end);

create function {{schema}}.trigger_source(p {{schema}}.protection) returns text
language sql volatile set search_path = pg_catalog, pg_temp
return format($body$
declare
    "resource of row" pg_catalog.text;
    "resource before" pg_catalog.text;
begin
    if tg_op = 'TRUNCATE' then
        perform %s.handle_unguarded(%s, tg_relid, null, 'truncate', 'TRUNCATE can''t be guarded: delete the rows in guarded transactions');
        return null;
    end if;%s
    "resource before" := "resource of row";%s%s
    return null;
end $body$, '{{schema}}', case when p.audit then -p.id else p.id end,
    {{schema}}.trigger_branch(p, 'old', 'INSERT', 'true'),
    {{schema}}.trigger_branch(p, 'new', 'DELETE', $if$tg_op = 'INSERT' or "resource of row" is distinct from "resource before"$if$),
    case when p.audit then $body$
    return null;
exception when others or assert_failure then
    raise log 'fencekit: the resource of % of % is not known: %', tg_op, tg_relid::pg_catalog.regclass, sqlerrm;
    perform $body$ || format($body$%s.record_unguarded(tg_relid, null, 'error', '%s error');$body$, '{{schema}}', p.id) end);

-- protected_members lists a table, and those that inherit from it: its partitions, for one.
create function {{schema}}.protected_members(p_relation regclass) returns table (member regclass, row_trigger boolean)
language sql volatile set search_path = pg_catalog, pg_temp
begin atomic
    with recursive tree as (
        select p_relation::oid as id
        union
        select i.inhrelid from pg_inherits i join tree on i.inhparent = tree.id)
    -- A partition has the row trigger of its table.
    select c.oid::regclass, c.oid = p_relation or not c.relispartition from tree join pg_class c on c.oid = tree.id order by c.oid;
end;

create function {{schema}}.drop_protection(p_protection integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_function regprocedure := to_regprocedure(format('%s.protect_%s()', '{{schema}}', p_protection));
    v_trigger  record;
begin
    for v_trigger in select tgname, tgrelid::regclass as relation from pg_trigger where tgfoid = v_function and tgparentid = 0 order by tgrelid, tgname loop
        execute format('drop trigger %I on %s', v_trigger.tgname, v_trigger.relation);
    end loop;
    if v_function is not null then
        execute format('drop function %s', v_function);
    end if;
    delete from {{schema}}.protection where id = p_protection;
end $$;

-- try_resource evaluates an expression as the trigger function will: for a row of the table or, without any, for
-- one of nulls, where only those errors count that any row would meet.
create function {{schema}}.try_resource(p_relation regclass, p_resource text, p_owner regrole) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_function text := format('%s.resource_of_row(%s)', '{{schema}}', p_relation);
    v_any      boolean;
begin
    execute format('create function %s returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as %L', v_function,
        format(E'declare\n    "resource of row" pg_catalog.text;\nbegin%s\n    return "resource of row";\nend', {{schema}}.resource_block(p_relation, p_resource, '$1')));
    execute format('alter function %s owner to %s', v_function, p_owner);
    execute format('select exists (select from %s)', p_relation) into v_any;
    execute format(case when v_any then 'select %s.resource_of_row(r) from %s r limit 1' else 'select %s.resource_of_row(null::%s)' end, '{{schema}}', p_relation);
    execute format('drop function %s', v_function);
exception when syntax_error_or_access_rule_violation or data_exception or integrity_constraint_violation or plpgsql_error then
    if v_any or sqlstate like '42%' then
        raise exception 'fencekit: % can''t be protected: its resource can''t be evaluated: %', p_relation, sqlerrm || case
            when sqlstate = '42703' and exists (select from pg_attribute where attrelid = p_relation and attgenerated = 'v')
            then ' (a trigger doesn''t see virtual generated columns, the default from PostgreSQL 18 on: name the columns that it is made of, or declare it stored)' else '' end
            using errcode = 'ZF007', hint = 'The expression names columns without the table, and functions with their schema.';
    end if;
end $$;

-- protect_table protects a table, or changes its protection; null leaves the expression or the mode as it is (audit
-- for a new one). The expression gives the name of a row's resource. It is evaluated with the rights of the
-- schema's owner, and with pg_catalog as the search_path. The caller owns the schema and the table, and is a member
-- of the schema's owner.
create function {{schema}}.protect_table(p_relation regclass, p_resource text, p_audit boolean) returns {{schema}}.protection
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_owner    regrole := (select nspowner from pg_namespace where oid = '{{schema}}'::regnamespace);
    v_function text;
    v_class    pg_class;
    v_member   record;
    p          {{schema}}.protection;
begin
    perform {{schema}}.drop_protection(id) from {{schema}}.protection where not exists (select from pg_class where oid = relation);
    execute format('lock table %s in share row exclusive mode', p_relation);
    select * into strict v_class from pg_class where oid = p_relation;
    if v_class.relkind not in ('r', 'p') or v_class.relpersistence = 't' or v_class.relnamespace in ('{{schema}}'::regnamespace, 'pg_catalog'::regnamespace) then
        raise exception 'fencekit: % can''t be protected: it must be an ordinary or partitioned table of your own, and not a temporary one', p_relation using errcode = 'ZF007';
    end if;
    update {{schema}}.protection set name = relation::text where relation <> p_relation and name = p_relation::text; -- it was renamed
    select * into p from {{schema}}.protection where relation = p_relation;
    p_resource := coalesce(p_resource, p.resource);
    p_audit := coalesce(p_audit, p.audit, true);
    if p_resource is null then
        raise exception 'fencekit: % is not protected: an expression for the resource of its rows is needed (fencectl protect --resource)', p_relation using errcode = 'ZF007';
    end if;
    perform {{schema}}.try_resource(p_relation, p_resource, v_owner);
    if exists (select from {{schema}}.protected_members(p_relation) m join pg_trigger t on t.tgrelid = m.member
                left join {{schema}}.protection o on o.relation = p_relation
                where t.tgname in ('fencekit_protect', 'fencekit_protect_truncate')
                  and t.tgfoid is distinct from to_regprocedure(format('%s.protect_%s()', '{{schema}}', o.id))) then
        raise exception 'fencekit: % can''t be protected: it is already protected: on its own partition or child, through a parent table, or by another Fencekit schema; unprotect that first', p_relation
            using errcode = 'ZF007';
    end if;
    insert into {{schema}}.protection as t (relation, name, resource, audit) values (p_relation, p_relation::text, p_resource, p_audit)
    on conflict (relation) do update set name = excluded.name, resource = excluded.resource, audit = excluded.audit, at = clock_timestamp()
    returning * into p;
    v_function := format('%s.protect_%s()', '{{schema}}', p.id);
    execute format('create or replace function %s returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as %L',
                   v_function, {{schema}}.trigger_source(p));
    execute format('alter function %s owner to %s', v_function, v_owner);
    execute format('revoke all on function %s from public', v_function);
    for v_member in select * from {{schema}}.protected_members(p_relation) loop
        if v_member.row_trigger then
            execute format('create or replace trigger fencekit_protect after insert or update or delete on %s for each row execute function %s', v_member.member, v_function);
            execute format('alter table %s enable always trigger fencekit_protect', v_member.member);
        end if;
        execute format('create or replace trigger fencekit_protect_truncate before truncate on %s for each statement execute function %s', v_member.member, v_function);
        execute format('alter table only %s enable always trigger fencekit_protect_truncate', v_member.member);
    end loop;
    return p;
end $$;

-- unprotect_table removes the protection of a table, and returns whether it had one. A table that is gone
-- (p_relation may be null) goes by its name or its OID.
create function {{schema}}.unprotect_table(p_relation regclass, p_name text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform {{schema}}.drop_protection(id) from {{schema}}.protection p
      where relation = p_relation
         or not exists (select from pg_class where oid = p.relation)
            and (p_name in (name, relation::oid::text) or right(name, length(p_name) + 1) = '.' || p_name);
    if not found and p_relation is null then
        raise exception 'fencekit: there is no table %', p_name using errcode = 'ZF007';
    end if;
    return found;
end $$;

create view {{schema}}.protected_table as
select case when c.oid is null or o.name is not null then p.name else p.relation::text end as "table",
       case when p.audit then 'audit' else 'enforce' end as mode,
       p.resource,
       case when o.name is not null and c.oid is null then 'the table is gone, and another one, which is not protected, has its name'
            when o.name is not null then format('the table was renamed, and another one, which is not protected, has its name %s', o.name)
            when c.oid is null then 'the table is gone' else nullif(concat_ws('; ', case
           when f.oid is null then 'the trigger function is gone'
           when f.prosrc <> {{schema}}.trigger_source(p) or not f.prosecdef or f.proowner <> (select relowner from pg_class where oid = '{{schema}}.protection'::regclass)
             or f.proconfig is distinct from '{"search_path=pg_catalog, pg_temp",enable_seqscan=off}' then 'the trigger function was changed, or a column that the resource names'
           else (select string_agg(distinct format('%s lacks a trigger, or it is not enabled always', m.member), '; ')
                   from {{schema}}.protected_members(p.relation) m
                  where not exists (select from pg_trigger t where t.tgrelid = m.member and t.tgfoid = f.oid and t.tgtype = 34 and t.tgenabled = 'A')
                     or not exists (select from pg_trigger t where t.tgrelid = m.member and t.tgfoid = f.oid and t.tgtype = 29 and t.tgenabled = 'A'
                                        and t.tgqual is null and t.tgattr = ''))
       end, case
           -- After each row, on insert and on update of its third column.
           when not exists (select from pg_trigger t where t.tgrelid = '{{schema}}.pending_write'::regclass and t.tgname = 'pending_write_sealed'
                               and t.tgfoid = '{{schema}}.check_writes()'::regprocedure and t.tgtype = 21 and t.tgattr = '3' and t.tgqual is null
                               and t.tginitdeferred and t.tgenabled = 'A')
           then 'the check at COMMIT (trigger pending_write_sealed) is gone, was changed, or is not enabled always'
       end), '') end as problem,
       p.at,
       u.unguarded_writes,
       u.last_at
  from {{schema}}.protection p
  join pg_namespace n on n.oid = '{{schema}}'::regnamespace
  left join pg_class c on c.oid = p.relation
  left join lateral (select p.name from pg_class x join pg_namespace y on y.oid = x.relnamespace
                      where format('%I.%I', y.nspname, x.relname) = p.name and x.relkind in ('r', 'p') and x.oid <> p.relation
                        and x.oid not in (select q.relation from {{schema}}.protection q)) o on true
  left join pg_proc f on f.pronamespace = n.oid and f.proname = 'protect_' || p.id
 cross join lateral (select count(*) as unguarded_writes, max(w.at) as last_at from {{schema}}.unguarded_write w
                      where w.relation in (select m.member from {{schema}}.protected_members(p.relation) m)) u;

create view {{schema}}.unguarded as
select w.relation::text as "table", w.resource, w.kind, w.role, w.application, count(*) as records, min(w.at) as first_at, max(w.at) as last_at
  from {{schema}}.unguarded_write w
 group by 1, 2, 3, 4, 5;

comment on view {{schema}}.protected_table is 'The protected tables; problem is null if the protection is intact.';
comment on view {{schema}}.unguarded is 'Unguarded writes that audit mode has let through; records is the number of records, one for each transaction and resource.';

revoke all on all functions in schema {{schema}} from public;
revoke all on all procedures in schema {{schema}} from public;

-- What a mistaken or malicious claim could spoil for good, and what would have
-- gone unnoticed.

insert into {{schema}}.migration (version, name) values (3, 'marks');

-- The highest token of the present epoch that was claimed, coarsely, and how far
-- above these marks a claim may be. One absurd token would shut a resource for
-- good, one absurd epoch the whole database. The first token, while the mark is 0,
-- may be any: lock services count from where they like. The owner of the schema
-- may change all of these.
alter table {{schema}}.setting
    add column token          bigint not null default 0,
    add column max_token_jump bigint not null default 1099511627776, -- 2^40
    add column max_epoch_jump bigint not null default 10,
    add constraint setting_token          check (token between 0 and 4611686018427387903),
    add constraint setting_max_token_jump check (max_token_jump between 1048576 and 4611686018427387903),
    add constraint setting_max_epoch_jump check (max_epoch_jump between 1 and 2147483647);

update {{schema}}.setting s
   set token = coalesce((select max(r.token) from {{schema}}.resource r where r.epoch = s.epoch), 0);

-- Grants of an epoch that is over must not come back.
create function {{schema}}.keep_epoch() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.epoch < old.epoch then
        raise exception 'fencekit: update of %.% from epoch % to % is not allowed: an epoch is never taken back',
            tg_table_schema, tg_table_name, old.epoch, new.epoch using errcode = 'ZF009';
    end if;
    return new;
end $$;

create trigger keep_epoch before update on {{schema}}.setting
    for each row execute function {{schema}}.keep_epoch();
alter table {{schema}}.setting enable always trigger keep_epoch;

revoke all on function {{schema}}.keep_epoch() from public;

-- Two names for one fence, or two fences for one name, are no fence.
create function {{schema}}.keep_name() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception 'fencekit: update of %.% is not allowed to change id or name: history and locks go by them; claim the new name beside the old one',
        tg_table_schema, tg_table_name using errcode = 'ZF009';
end $$;

create trigger keep_name before update of id, name on {{schema}}.resource
    for each statement execute function {{schema}}.keep_name();
alter table {{schema}}.resource enable always trigger keep_name;

revoke all on function {{schema}}.keep_name() from public;

-- Numbers of resources are keys of advisory locks too, and those belong to the
-- whole database: from a random start, two schemas don't meet, nor do
-- applications that use small numbers.
do $$
begin
    if not exists (select from {{schema}}.resource) then
        perform setval(pg_get_serial_sequence('{{schema}}.resource', 'id'), 1000000 + floor(random() * 1000000000)::bigint);
    end if;
end $$;

create table lot (
    id       bigint  generated always as identity primary key,
    sku      text    not null,
    received date    not null,
    quantity integer not null check (quantity > 0)
);
create index on lot (sku, received);

create table reservation (
    order_id text    not null,
    lot      bigint  not null references lot,
    quantity integer not null check (quantity > 0),
    primary key (order_id, lot)
);
create index on reservation (lot);

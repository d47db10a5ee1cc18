create table stock (sku text primary key, qty bigint not null);
create table outbox (id bigserial primary key, event text not null, sku text not null, qty bigint not null);
create table reorder (id bigserial primary key, sku text not null);

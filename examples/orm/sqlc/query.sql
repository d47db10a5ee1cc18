-- name: Stock :one
select qty from stock where sku = $1;

-- name: SetStock :exec
update stock set qty = $2 where sku = $1;

-- name: AddEvent :exec
insert into outbox (event, sku, qty) values ($1, $2, $3);

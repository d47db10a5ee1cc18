package observe

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Querier is a connection, a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// ordersTable has a row for each effect of the built-in workload.
const ordersTable = "public.orders"

// Transaction ids are read without their epoch, as the write-ahead log has them.
const (
	entriesSQL = `
select coalesce(r.name, '#' || e.resource), e.seq, case e.kind when 'c' then 'claim' when 'w' then 'write' else 'void' end,
       coalesce(c.epoch, 0), coalesce(c.token, 0), coalesce(c.holder, ''),
       (e.xid::text::numeric % 4294967296)::bigint,
       array(select op ->> 'id' from json_array_elements(e.ops) with ordinality o(op, n) where op ->> 'id' is not null order by n)
  from fence.history e left join fence.resource r on r.id = e.resource
  left join fence.history c on c.resource = e.resource and c.seq = e.claim and c.kind = 'c'
 order by 1, e.seq`
	rejectionsSQL = `
select resource, reason, stage, token, holder, current_token, count
  from fence.rejection order by resource, id`
	effectsSQL = "select id, op, resource, token, quantity, seen from " + ordersTable + " order by id"
	stocksSQL  = "select resource, initial, available from public.stock order by resource"
)

// Read reads Fencekit's history and rejections directly from its tables in the schema
// fence, by resource and position. Both are empty if there is no such schema.
func Read(ctx context.Context, db Querier) ([]Entry, []Rejection, error) {
	there, err := exists(ctx, db, "fence.history")
	if err != nil || !there {
		return nil, nil, err
	}
	entries, err := collect(ctx, db, "history", entriesSQL, func(row pgx.CollectableRow) (e Entry, err error) {
		err = row.Scan(&e.Resource, &e.Seq, &e.Kind, &e.Epoch, &e.Token, &e.Holder, &e.XID, &e.Ops)
		return e, err
	})
	if err != nil {
		return nil, nil, err
	}
	rejections, err := collect(ctx, db, "rejections", rejectionsSQL, func(row pgx.CollectableRow) (r Rejection, err error) {
		err = row.Scan(&r.Resource, &r.Reason, &r.Stage, &r.Token, &r.Holder, &r.Current, &r.Count)
		return r, err
	})
	return entries, rejections, err
}

// ReadStock reads the data of the built-in workload: an Effect per order, without its XID,
// and a Stock per resource. Both are empty if another workload ran.
func ReadStock(ctx context.Context, db Querier) ([]Effect, []Stock, error) {
	there, err := exists(ctx, db, ordersTable)
	if err != nil || !there {
		return nil, nil, err
	}
	effects, err := collect(ctx, db, "orders", effectsSQL, func(row pgx.CollectableRow) (e Effect, err error) {
		err = row.Scan(&e.Order, &e.Op, &e.Resource, &e.Token, &e.Quantity, &e.Seen)
		return e, err
	})
	if err != nil {
		return nil, nil, err
	}
	stocks, err := collect(ctx, db, "stock", stocksSQL, func(row pgx.CollectableRow) (s Stock, err error) {
		err = row.Scan(&s.Resource, &s.Initial, &s.Available)
		return s, err
	})
	return effects, stocks, err
}

func exists(ctx context.Context, db Querier, table string) (bool, error) {
	there, err := collect(ctx, db, table, "select to_regclass($1) is not null", pgx.RowTo[bool], table)
	return err == nil && there[0], err
}

func collect[T any](ctx context.Context, db Querier, what, sql string, scan pgx.RowToFunc[T], args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("observe: %s: %w", what, err)
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("observe: %s: %w", what, err)
	}
	return all, nil
}

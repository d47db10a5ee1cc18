package contender

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage/postgres"
)

// The table that operations use, each row of which begins with more than can be sold.
const (
	createStock = `create table stock (sku text primary key, qty bigint not null, version bigint not null default 0)`
	fillStock   = `insert into stock select lpad(n::text, 6, '0'), 1000000000000, 0 from generate_series(0, $1::int - 1) n`
	sumSold     = `select (count(*) * 1000000000000 - sum(qty))::bigint, pg_database_size(current_database()) from stock`
)

// Prepare makes the tables of all contenders in an empty database. The one that operations
// use gets as many rows as asked for.
func Prepare(ctx context.Context, dsn string, rows int) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, createStock); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, fillStock, rows); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, createOwnFence); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "vacuum analyze"); err != nil {
		return err
	}
	return createLocks(dsn)
}

// Seen is what a database shows.
type Seen struct {
	Sold  int64 // keys of all operations together
	Bytes int64 // of all of its files
}

// Look looks at a database to which conn is connected.
func Look(ctx context.Context, conn *pgx.Conn) (seen Seen, err error) {
	err = conn.QueryRow(ctx, sumSold).Scan(&seen.Sold, &seen.Bytes)
	return seen, err
}

// The statements of an operation.
const (
	readQty   = `select qty from stock where sku = $1`
	lockQty   = `select qty from stock where sku = $1 for update`
	writeQty  = `update stock set qty = $2 where sku = $1`
	takeOne   = `update stock set qty = qty - 1 where sku = $1 and qty >= 1`
	readBoth  = `select qty, version from stock where sku = $1`
	writeBoth = `update stock set qty = $2, version = version + 1 where sku = $1 and version = $3`
)

// sell reads and writes each row, in two round trips for each.
func sell(ctx context.Context, tx pgx.Tx, read string, skus []string) error {
	for _, sku := range skus {
		var qty int64
		if err := tx.QueryRow(ctx, read, sku).Scan(&qty); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, writeQty, sku, qty-1); err != nil {
			return err
		}
	}
	return nil
}

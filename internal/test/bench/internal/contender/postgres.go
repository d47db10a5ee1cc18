package contender

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
	"github.com/fencekit/fencekit/storage/postgres"
)

// The table that operations use, each row of which begins with more than can be sold; and that of OwnFence.
const (
	createStock = `create table stock (sku text primary key, qty bigint not null)`
	fillStock   = `insert into stock select lpad(n::text, 6, '0'), 1000000000000 from generate_series(0, $1::int - 1) n`
	sumSold     = `select (count(*) * 1000000000000 - sum(qty))::bigint from stock`

	createOwnFence = `create table own_fence (resource text primary key, token bigint not null, seq bigint not null) with (fillfactor = 50);
create table own_history (resource text, seq bigint, token bigint not null, at timestamptz not null default now(), primary key (resource, seq))`
)

const (
	readQty  = `select qty from stock where sku = $1`
	lockQty  = `select qty from stock where sku = $1 for update`
	writeQty = `update stock set qty = $2 where sku = $1`
	takeOne  = `update stock set qty = qty - 1 where sku = $1 and qty >= 1`

	raiseOwnFence = `insert into own_fence values ($1, 1, 0) on conflict do nothing`
	// A token that is not the resource's moves nothing, and divides by zero.
	moveOwnFence = `with moved as (update own_fence set seq = seq + 1 where resource = $1 and token = $2 returning seq, token),
entry as (insert into own_history (resource, seq, token) select $1, seq, token from moved returning seq)
select 1 / count(*) from entry`
)

// Prepare makes the tables of all contenders in an empty database.
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
	_, err = pool.Exec(ctx, "vacuum analyze")
	return err
}

// Sold returns how many keys all operations together have sold, as the rows of the database show.
func Sold(ctx context.Context, conn *pgx.Conn) (n int64, err error) {
	err = conn.QueryRow(ctx, sumSold).Scan(&n)
	return n, err
}

// newPool returns a pool with all of its connections open.
func newPool(ctx context.Context, t *load.Target) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(t.Postgres)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(t.Connections)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	t.OnClose(func(context.Context) error { pool.Close(); return nil })
	conns, errs := make([]*pgxpool.Conn, t.Connections), make([]error, t.Connections)
	var opening sync.WaitGroup
	for i := range conns {
		opening.Go(func() { conns[i], errs[i] = pool.Acquire(ctx) })
	}
	opening.Wait()
	for _, c := range conns {
		if c != nil {
			c.Release()
		}
	}
	return pool, errors.Join(errs...)
}

func onPool(do func(ctx context.Context, pool *pgxpool.Pool, item load.Item) error) load.Open {
	return func(ctx context.Context, t *load.Target) (load.Work, error) {
		pool, err := newPool(ctx, t)
		return load.Work{Do: func(ctx context.Context, _ int, item load.Item) error { return do(ctx, pool, item) }}, err
	}
}

type operation func(ctx context.Context, tx pgx.Tx, item load.Item) error

// transaction runs an operation in a transaction that nothing guards.
func transaction(options pgx.TxOptions, do operation) load.Open {
	return onPool(func(ctx context.Context, pool *pgxpool.Pool, item load.Item) error {
		return pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error { return do(ctx, tx, item) })
	})
}

// sell reads and writes each row, in two round trips for each.
func sell(read string) operation {
	return func(ctx context.Context, tx pgx.Tx, item load.Item) error {
		for _, sku := range item.SKUs {
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
}

var sellReading = sell(readQty)

func look(ctx context.Context, tx pgx.Tx, item load.Item) error {
	for _, sku := range item.SKUs {
		var qty int64
		if err := tx.QueryRow(ctx, readQty, sku).Scan(&qty); err != nil {
			return err
		}
	}
	return nil
}

// update is the operation as one statement, without a read or a decision in between.
func update(ctx context.Context, pool *pgxpool.Pool, item load.Item) error {
	_, err := pool.Exec(ctx, takeOne, item.SKUs[0])
	return err
}

func sellUnderAdvisoryLock(ctx context.Context, tx pgx.Tx, item load.Item) error {
	for _, resource := range item.Resources {
		h := fnv.New64a()
		_, _ = h.Write([]byte(resource))
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(h.Sum64())); err != nil {
			return err
		}
	}
	return sellReading(ctx, tx, item)
}

// ownFence is the operation in a transaction that compares a token, counts the move and records it in two
// tables of its own, all in one write with COMMIT. So it bounds the rate of any guarded transaction that
// keeps its fence and its history in tables.
func ownFence(ctx context.Context, t *load.Target) (load.Work, error) {
	pool, err := newPool(ctx, t)
	if err != nil {
		return load.Work{}, err
	}
	for g := range t.Goroutines {
		for _, resource := range t.Item(g).Resources {
			if _, err := pool.Exec(ctx, raiseOwnFence, resource); err != nil {
				return load.Work{}, err
			}
		}
	}
	return load.Work{Do: func(ctx context.Context, _ int, item load.Item) error {
		return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return sellUnderOwnFence(ctx, conn, item) })
	}}, nil
}

func sellUnderOwnFence(ctx context.Context, conn *pgxpool.Conn, item load.Item) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	if err := sellReading(ctx, tx, item); err != nil {
		return errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
	}
	end := &pgx.Batch{}
	for _, resource := range item.Resources {
		end.Queue(moveOwnFence, resource, 1)
	}
	end.Queue("commit")
	return conn.SendBatch(ctx, end).Close()
}

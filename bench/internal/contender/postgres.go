package contender

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/bench/internal/load"
)

// Bare is the operation in a transaction that nothing guards. Of concurrent ones on one row
// it loses updates.
var Bare = onPool(func(ctx context.Context, _ *load.Target, pool *pgxpool.Pool, item load.Item) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return sell(ctx, tx, readQty, item.SKUs) })
})

// AtomicUpdate is the operation as one statement for each row, without a read or a decision
// in between; for one row in no transaction but its own.
var AtomicUpdate = onPool(func(ctx context.Context, _ *load.Target, pool *pgxpool.Pool, item load.Item) error {
	if len(item.SKUs) == 1 {
		_, err := pool.Exec(ctx, takeOne, item.SKUs[0])
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, sku := range item.SKUs {
			if _, err := tx.Exec(ctx, takeOne, sku); err != nil {
				return err
			}
		}
		return nil
	})
})

// ForUpdate locks each row when it reads it.
var ForUpdate = onPool(func(ctx context.Context, _ *load.Target, pool *pgxpool.Pool, item load.Item) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return sell(ctx, tx, lockQty, item.SKUs) })
})

// AdvisoryLock acquires an advisory lock of the transaction for each row, first.
var AdvisoryLock = onPool(func(ctx context.Context, _ *load.Target, pool *pgxpool.Pool, item load.Item) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, resource := range item.Resources {
			if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", advisoryKey(resource)); err != nil {
				return err
			}
		}
		return sell(ctx, tx, readQty, item.SKUs)
	})
})

func advisoryKey(resource string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(resource))
	return int64(h.Sum64())
}

// Serializable runs the operation at SERIALIZABLE, again and again until it isn't rolled back
// for a conflict.
var Serializable = onPool(func(ctx context.Context, t *load.Target, pool *pgxpool.Pool, item load.Item) error {
	for {
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
			return sell(ctx, tx, readQty, item.SKUs)
		})
		var answer *pgconn.PgError
		if !errors.As(err, &answer) || !slices.Contains([]string{"40001", "40P01"}, answer.Code) {
			return err
		}
		t.Retries.Add(1)
	}
})

// errConflict: another transaction has written a row since it was read.
var errConflict = errors.New("contender: the version has changed")

// Optimistic writes a row only if its version is the one that was read, and begins again
// otherwise.
var Optimistic = onPool(func(ctx context.Context, t *load.Target, pool *pgxpool.Pool, item load.Item) error {
	for {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return sellByVersion(ctx, tx, item.SKUs) })
		if !errors.Is(err, errConflict) {
			return err
		}
		t.Retries.Add(1)
	}
})

func sellByVersion(ctx context.Context, tx pgx.Tx, skus []string) error {
	for _, sku := range skus {
		var qty, version int64
		if err := tx.QueryRow(ctx, readBoth, sku).Scan(&qty, &version); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, writeBoth, sku, qty-1, version)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errConflict
		}
	}
	return nil
}

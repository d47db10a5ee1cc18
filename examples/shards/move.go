package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// move moves each product that is in another database than it belongs to, and each that is in a
// database that has been retired. It may be broken off and run again. Before it the databases have
// been given their new names; until it has ended, no process sells.
func (s *shop) move(ctx context.Context, out io.Writer) error {
	moved := 0
	for i, pool := range slices.Concat(s.retired, s.pools) {
		name, shard := "retired", i-len(s.retired)
		if shard >= 0 {
			name = fmt.Sprintf("%d of %d, rule 1", shard, len(s.pools))
		}
		n, err := s.moveFrom(ctx, pool, name, shard)
		if err != nil {
			return err
		}
		moved += n
	}
	fmt.Fprintf(out, "%d products moved\n", moved)
	return nil
}

// moveFrom moves what doesn't belong to a shard out of its database. It needs a Guard of that database
// alone, since s.shards only goes where a product belongs.
func (s *shop) moveFrom(ctx context.Context, pool *pgxpool.Pool, name string, shard int) (moved int, err error) {
	from, err := fencekit.New(s.client, pool, &fencekit.Config{Store: postgres.Config{Shard: name}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, from.Close(ctx)) }()
	// Also what has a fence and no row: a holder that stands still could be about to insert one.
	rows, err := pool.Query(ctx, "select sku from stock union select substr(name, 5) from fence.resource where name like 'sku/%' order by 1")
	if err != nil {
		return 0, err
	}
	skus, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, err
	}
	for _, sku := range skus {
		if guard.ShardOf(resource(sku), len(s.pools)) == shard {
			continue
		}
		found, err := s.moveOne(ctx, from, sku)
		if err != nil {
			return moved, fmt.Errorf("moving %s: %w", sku, err)
		}
		if found {
			moved++
		}
	}
	return moved, nil
}

// moveOne moves a product to the database that it belongs to under one grant, which claims in both
// before it reads: so an earlier holder that stands still, or an earlier run of this, can write to
// neither from then on.
func (s *shop) moveOne(ctx context.Context, from fencekit.Runner, sku string) (found bool, err error) {
	name := resource(sku)
	err = guard.Hold(ctx, from, name, func(ctx context.Context, from fencekit.Runner) error {
		return guard.Hold(ctx, s.shards.UnderGrant(guard.Grants(ctx)...), name, func(ctx context.Context, to fencekit.Runner) error {
			qty, err := guard.Value(ctx, from, name, func(ctx context.Context, tx pgx.Tx) (qty int, err error) {
				err = tx.QueryRow(ctx, "select qty from stock where sku = $1", sku).Scan(&qty)
				return qty, err
			}, guard.ReadOnly())
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			found = true
			if err := guard.Do(ctx, to, name, insert(sku, qty), guard.Name("move in")); err != nil {
				return err
			}
			return guard.Do(ctx, from, name, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "delete from stock where sku = $1", sku)
				return err
			}, guard.Name("move out"))
		})
	}, guard.Retryable())
	return found, err
}

// insert inserts a product unless an earlier run has, after which nothing was sold. If something was,
// only a person can tell which of the two quantities is right.
func insert(sku string, qty int) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into stock values ($1, $2) on conflict do nothing", sku, qty); err != nil {
			return err
		}
		var there int
		if err := tx.QueryRow(ctx, "select qty from stock where sku = $1", sku).Scan(&there); err != nil {
			return err
		}
		if there != qty {
			return fmt.Errorf("it is in two databases: %d in the one that it belongs to, %d in the other; it was sold before all had been moved", there, qty)
		}
		return nil
	}
}

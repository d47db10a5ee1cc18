package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
)

// move moves each product that is in another database than it belongs to. It may be broken off and
// run again. Before it the databases have been given their new shards; while it runs, no process
// with the new list of databases sells.
func (s *shop) move(ctx context.Context, out io.Writer) error {
	moved := 0
	for shard, pool := range s.pools {
		// Also what has a fence and no row: a holder that stands still could be about to insert one.
		rows, err := pool.Query(ctx, "select sku from stock union select substr(name, 5) from fence.resource where name like 'sku/%' order by 1")
		if err != nil {
			return err
		}
		skus, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, sku := range skus {
			if guard.ShardOf(resource(sku), len(s.pools)) == shard {
				continue
			}
			found, err := moveOne(ctx, s.shards.Guards()[shard], s.shards.Guard(resource(sku)), sku)
			if err != nil {
				return fmt.Errorf("moving %s: %w", sku, err)
			}
			if found {
				moved++
			}
		}
	}
	fmt.Fprintf(out, "%d products moved\n", moved)
	return nil
}

// moveOne moves a product from one database to another under one grant, which claims in both: so an
// earlier holder that stands still can write to neither from then on. What the second database has
// already is newer than what the first one has: an earlier run has brought it.
func moveOne(ctx context.Context, from, to *guard.Guard[pgx.Tx], sku string) (found bool, err error) {
	err = guard.Hold(ctx, from, resource(sku), func(ctx context.Context, held fencekit.Runner) error {
		qty, err := guard.Value(ctx, held, resource(sku), func(ctx context.Context, tx pgx.Tx) (qty int, err error) {
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
		err = guard.Do(ctx, to.UnderGrant(guard.Grants(ctx)...), resource(sku), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into stock values ($1, $2) on conflict do nothing", sku, qty)
			return err
		}, guard.Name("move in"))
		if err != nil {
			return err
		}
		return guard.Do(ctx, held, resource(sku), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "delete from stock where sku = $1", sku)
			return err
		}, guard.Name("move out"))
	}, guard.Retryable())
	return found, err
}

// Package orm has one sale written with each of GORM, bun, ent, sqlx and sqlc's code for database/sql, and one that
// inserts a job of river. Each sale takes from the stock and writes an event into an outbox, in a guarded
// transaction. What a service that had a *sql.DB, a *gorm.DB or a *bun.DB changes is Guarded, bindGORM or bindBun; and
// once its start-up: a pool, and a Guard on it.
package orm

import (
	"context"
	"database/sql"
	"errors"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardsql"
)

// ErrSoldOut: fewer are left.
var ErrSoldOut = errors.New("sold out")

// Guarded calls sell with a DB on which no earlier holder of the product can commit any more.
func Guarded(ctx context.Context, g fencekit.Runner, sku string, n int64, sell func(ctx context.Context, db *sql.DB, sku string, n int64) error) error {
	return guard.Do(ctx, g, "sku/"+sku, guardsql.With(func(ctx context.Context, db *sql.DB) error {
		return sell(ctx, db, sku, n)
	}))
}

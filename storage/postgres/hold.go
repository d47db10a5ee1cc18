package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
)

const maxReason = 1000

// HoldHistory keeps the history and the rejections of a resource from being pruned, until
// ReleaseHistory. The resource is an exact name, and needn't exist yet, so a misspelt name is no
// error: audit.Database.Fences returns those that exist, and audit.Database.Holds the holds. If a
// prune is running, HoldHistory waits until its present transaction ends. A second call replaces
// the reason and the role of the hold, but not its time. The pool's role must own the schema (""
// means DefaultSchema). HoldHistory fails with fence.ErrInvalid if reason is empty or longer than
// 1,000 bytes.
func HoldHistory(ctx context.Context, pool *pgxpool.Pool, schema, resource, reason string) error {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return err
	}
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	if reason == "" || len(reason) > maxReason {
		return fmt.Errorf("%w: a hold needs a reason of at most %d bytes", fence.ErrInvalid, maxReason)
	}
	err := record.WriteTx(ctx, pool, func(tx pgx.Tx) error {
		schema := schemaIdentifier(schema)
		if _, err := tx.Exec(ctx, "lock table "+schema+".hold in row exclusive mode"); err != nil {
			return err
		}
		// After the last prune, also if the clock was ahead then: verification compares the two.
		_, err := tx.Exec(ctx, "insert into "+schema+".hold (name, reason, at) values ($1::text, $2, greatest(clock_timestamp(), "+
			"(select c.pruned_at from "+schema+".checkpoint c join "+schema+".resource r on r.id = c.resource where r.name = $1::text))) "+
			"on conflict (name) do update set reason = excluded.reason, role = session_user", resource, reason)
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: holding the history of %s: %w", resource, err)
	}
	return nil
}

// ReleaseHistory ends the hold on the history of a resource, and reports whether there was one. The
// pool's role must own the schema ("" means DefaultSchema).
func ReleaseHistory(ctx context.Context, pool *pgxpool.Pool, schema, resource string) (held bool, err error) {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return false, err
	}
	err = record.WriteTx(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "delete from "+schemaIdentifier(schema)+".hold where name = $1", resource)
		held = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("postgres: releasing the history of %s: %w", resource, err)
	}
	return held, nil
}

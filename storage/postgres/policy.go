package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/internal/retention"
)

// Policy says for how long a schema keeps what Store.Prune deletes. It is a part of the schema's
// settings, which only its owner can change.
type Policy struct {
	// Keep is the age from which entries of the history and rejections may be deleted: at least
	// an hour. 0, the default, sets no age: Store.Prune then deletes none, and Prune only what its
	// PruneOptions ask for.
	Keep time.Duration
	// KeepEntries is how many entries of each resource are kept, however old: at least one.
	// Default 1000.
	KeepEntries int64
	// KeepOnce is how long a key of guard.Once is kept: at least a minute. Default 7 days. Call
	// Store.Prune at least four times in that period, or no key is deleted.
	KeepOnce time.Duration
}

func (p Policy) validate() error {
	if (p.Keep != 0 && p.Keep < retention.MinKeep) || p.Keep > retention.MaxKeep || p.KeepEntries < 1 || p.KeepOnce < retention.MinKeepOnce || p.KeepOnce > retention.MaxKeep {
		return fmt.Errorf("%w: postgres.Policy keeps history for %v, %d entries of each resource, and Once keys for %v: "+
			"want at least 1h, or 0 for good, 1 entry and 1m, and at most 100,000 days", fence.ErrInvalid, p.Keep, p.KeepEntries, p.KeepOnce)
	}
	return nil
}

// ReadPolicy returns the policy of a schema ("" means DefaultSchema). The reader role is enough.
func ReadPolicy(ctx context.Context, pool *pgxpool.Pool, schema string) (p Policy, err error) {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return p, err
	}
	var keep, keepOnce int64 // in microseconds
	err = record.ReadTx(ctx, pool, "", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select coalesce("+micros("history_keep")+", 0), history_keep_entries, "+micros("once_retention")+
			" from "+schemaIdentifier(schema)+".setting").Scan(&keep, &p.KeepEntries, &keepOnce)
	})
	if err != nil {
		return p, fmt.Errorf("postgres: reading the policy: %w", err)
	}
	p.Keep, p.KeepOnce = time.Duration(keep)*time.Microsecond, time.Duration(keepOnce)*time.Microsecond
	return p, nil
}

// SetPolicy sets the policy of a schema ("" means DefaultSchema). It deletes nothing: the next
// prune does. If a prune is running, SetPolicy waits until its present transaction ends; later
// transactions follow the new policy. The pool's role must own the schema. SetPolicy fails with
// fence.ErrInvalid if a field is out of bounds.
func SetPolicy(ctx context.Context, pool *pgxpool.Pool, schema string, p Policy) error {
	schema = orDefault(schema)
	if err := validateSchema(schema); err != nil {
		return err
	}
	if err := p.validate(); err != nil {
		return err
	}
	err := record.WriteTx(ctx, pool, func(tx pgx.Tx) error {
		setting := schemaIdentifier(schema) + ".setting"
		// Prunes lock the row FOR KEY SHARE, which an update alone wouldn't wait for.
		if _, err := tx.Exec(ctx, "select from "+setting+" where one for update"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update "+setting+" set history_keep = justify_hours($1), history_keep_entries = $2, once_retention = justify_hours($3)",
			nullIfZero(p.Keep), p.KeepEntries, p.KeepOnce)
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: setting the policy: %w", err)
	}
	return nil
}

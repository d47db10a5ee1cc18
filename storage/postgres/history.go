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
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// Entries implements storage.History.
func (s *Store) Entries(ctx context.Context, resource string, after int64, limit int) ([]storage.Entry, error) {
	if limit < 1 {
		return nil, fmt.Errorf("%w: Entries with a limit of %d", fence.ErrInvalid, limit)
	}
	entries, err := collect(ctx, s, s.sql.entries, []any{resource, after, limit}, func(row pgx.CollectableRow) (storage.Entry, error) {
		e := storage.Entry{Grant: fence.Grant{Resource: resource}}
		var ops string
		err := row.Scan(&e.Kind, &e.Grant.Epoch, &e.Grant.Token, &e.Grant.Holder, &e.Seq, &e.Tx, &ops, &e.At, &e.Hash)
		if err != nil {
			return e, err
		}
		e.Ops = record.Ops(ops)
		return e, nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: history of %s: %w", resource, wire.NameCached(err))
	}
	return entries, nil
}

// Rejections implements storage.History.
func (s *Store) Rejections(ctx context.Context, resource string, limit int) ([]storage.Rejection, error) {
	if limit < 1 {
		return nil, fmt.Errorf("%w: Rejections with a limit of %d", fence.ErrInvalid, limit)
	}
	records, err := collect(ctx, s, s.sql.rejections, []any{resource, limit}, func(row pgx.CollectableRow) (storage.Rejection, error) {
		r := storage.Rejection{Grant: fence.Grant{Resource: resource}, Current: fence.Grant{Resource: resource}}
		var since *time.Time // null if no claim was known
		err := row.Scan(&r.Reason, &r.Stage, &r.Grant.Epoch, &r.Grant.Token, &r.Grant.Holder,
			&r.Current.Epoch, &r.Current.Token, &r.Current.Holder, &since, &r.Count, &r.First, &r.Last)
		if since != nil {
			r.Since = *since
		}
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: rejections of %s: %w", resource, wire.NameCached(err))
	}
	return records, nil
}

// collect returns the rows of a query.
func collect[T any](ctx context.Context, s *Store, sql string, args []any, scan pgx.RowToFunc[T]) (all []T, err error) {
	err = record.ReadTx(ctx, s.pool, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err == nil {
			all, err = pgx.CollectRows(rows, scan)
		}
		return err
	})
	return all, err
}

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
	schema, err = identifierOf(schema)
	if err != nil {
		return p, err
	}
	var keep, keepOnce int64 // in microseconds
	err = record.ReadTx(ctx, pool, "", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select coalesce("+micros("history_keep")+", 0), history_keep_entries, "+micros("once_retention")+
			" from "+schema+".setting").Scan(&keep, &p.KeepEntries, &keepOnce)
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
	if err := p.validate(); err != nil {
		return err
	}
	return asOwner(ctx, pool, schema, "setting the policy", func(tx pgx.Tx, schema string) error {
		// Prunes lock the row FOR KEY SHARE, which an update alone wouldn't wait for.
		if _, err := tx.Exec(ctx, "select from "+schema+".setting where one for update"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update "+schema+".setting set history_keep = justify_hours($1), history_keep_entries = $2, once_retention = justify_hours($3)",
			nullIfZero(p.Keep), p.KeepEntries, p.KeepOnce)
		return err
	})
}

// asOwner runs change in a transaction on a schema ("" means DefaultSchema), which change gets as an
// identifier. what says in an error what failed.
func asOwner(ctx context.Context, pool *pgxpool.Pool, schema, what string, change func(tx pgx.Tx, schema string) error) error {
	schema, err := identifierOf(schema)
	if err != nil {
		return err
	}
	if err := record.WriteTx(ctx, pool, func(tx pgx.Tx) error { return change(tx, schema) }); err != nil {
		return fmt.Errorf("postgres: %s: %w", what, err)
	}
	return nil
}

const maxReason = 1000

// HoldHistory keeps the history and the rejections of a resource from being pruned, until
// ReleaseHistory. The resource is an exact name, and needn't exist yet, so a misspelt name is no
// error: audit.Database.Fences returns those that exist, and audit.Database.Holds the holds. If a
// prune is running, HoldHistory waits until its present transaction ends. A second call replaces
// the reason and the role of the hold, but not its time. The pool's role must own the schema (""
// means DefaultSchema). HoldHistory fails with fence.ErrInvalid if reason is empty or longer than
// 1,000 bytes.
func HoldHistory(ctx context.Context, pool *pgxpool.Pool, schema, resource, reason string) error {
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	if reason == "" || len(reason) > maxReason {
		return fmt.Errorf("%w: a hold needs a reason of at most %d bytes", fence.ErrInvalid, maxReason)
	}
	return asOwner(ctx, pool, schema, "holding the history of "+resource, func(tx pgx.Tx, schema string) error {
		if _, err := tx.Exec(ctx, "lock table "+schema+".hold in row exclusive mode"); err != nil {
			return err
		}
		// After the last prune, also if the clock was ahead then: verification compares the two.
		_, err := tx.Exec(ctx, "insert into "+schema+".hold (name, reason, at) values ($1::text, $2, greatest(clock_timestamp(), "+
			"(select c.pruned_at from "+schema+".checkpoint c join "+schema+".resource r on r.id = c.resource where r.name = $1::text))) "+
			"on conflict (name) do update set reason = excluded.reason, role = session_user", resource, reason)
		return err
	})
}

// ReleaseHistory ends the hold on the history of a resource, and reports whether there was one. The
// pool's role must own the schema ("" means DefaultSchema).
func ReleaseHistory(ctx context.Context, pool *pgxpool.Pool, schema, resource string) (held bool, err error) {
	err = asOwner(ctx, pool, schema, "releasing the history of "+resource, func(tx pgx.Tx, schema string) error {
		tag, err := tx.Exec(ctx, "delete from "+schema+".hold where name = $1", resource)
		held = tag.RowsAffected() > 0
		return err
	})
	return held, err
}

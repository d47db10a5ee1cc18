package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
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

package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// savepoint is a pseudo nested transaction. Its name is random, so that it can't
// be one that the operation uses, and it is released when it ends.
type savepoint struct {
	*tx
	name string
	done bool
}

func beginSavepoint(ctx context.Context, t *tx) (pgx.Tx, error) {
	s := &savepoint{tx: t, name: fmt.Sprintf("fencekit_%x", int64(newTxID()))}
	if _, err := t.Exec(ctx, "savepoint "+s.name); err != nil {
		return nil, err
	}
	return s, nil
}

// Commit releases the savepoint: its work belongs to the transaction around it.
func (s *savepoint) Commit(ctx context.Context) error {
	if s.done {
		return pgx.ErrTxClosed
	}
	s.done = true
	if s.conn.PgConn().TxStatus() == 'E' {
		return errors.Join(pgx.ErrTxCommitRollback, s.undo(ctx))
	}
	_, err := s.Exec(ctx, "release savepoint "+s.name)
	return err
}

// Rollback undoes what was done since Begin.
func (s *savepoint) Rollback(ctx context.Context) error {
	if s.done {
		return pgx.ErrTxClosed
	}
	s.done = true
	return s.undo(ctx)
}

func (s *savepoint) undo(ctx context.Context) error {
	if _, err := s.Exec(ctx, "rollback to savepoint "+s.name); err != nil {
		return err
	}
	_, err := s.Exec(ctx, "release savepoint "+s.name)
	return err
}

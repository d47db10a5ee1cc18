package operation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// savepoint is a pseudo nested transaction. Its name is random, so that it can't clash with
// one that the operation uses, and it is released when it ends.
type savepoint struct {
	tx
	name string
}

func beginSavepoint(ctx context.Context, t *tx) (pgx.Tx, error) {
	name := fmt.Sprintf("fencekit_%x", rand.Uint64())
	if _, err := t.Exec(ctx, "savepoint "+name); err != nil {
		return nil, err
	}
	return &savepoint{tx: tx{session: t.session}, name: name}, nil
}

// Commit releases the savepoint: its work belongs to the transaction around it. If
// that fails, Rollback still undoes it.
func (s *savepoint) Commit(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	failed := s.conn.PgConn().TxStatus() == 'E'
	s.leave()
	if failed {
		return errors.Join(pgx.ErrTxCommitRollback, s.Rollback(ctx))
	}
	return s.end(ctx, "release savepoint "+s.name)
}

// Rollback undoes what was done since Begin. If that fails, nothing of the whole
// transaction can commit.
func (s *savepoint) Rollback(ctx context.Context) error {
	if s.over.Load() {
		return pgx.ErrTxClosed
	}
	err := s.end(ctx, "rollback to savepoint "+s.name+"; release savepoint "+s.name)
	if err != nil {
		s.barCommit(fmt.Errorf("postgres: a savepoint could not be rolled back: %w", err))
	}
	return err
}

func (s *savepoint) end(ctx context.Context, sql string) error {
	_, err := s.Exec(ctx, sql)
	s.over.Store(err == nil)
	return err
}

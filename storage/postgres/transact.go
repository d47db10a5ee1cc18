package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// transact runs sql, one statement with a result of one row, in a transaction of its own at
// READ COMMITTED. When it returns nil that has committed, and the first row of the answer
// is the result. behind, if not empty, runs after that, and may have failed. If the
// connection was terminated, perhaps before it left the pool, sql is run again on another
// one. It may have committed the first time: then at worst a rejection is counted twice.
func (s *Store) transact(ctx context.Context, sql, behind string) (a *wire.Answer, err error) {
	for range tries {
		if a, err = s.transactOnce(ctx, sql, behind); sqlstate.Of(err) != sqlstate.Terminated {
			break
		}
	}
	return a, err
}

func (s *Store) transactOnce(ctx context.Context, sql, behind string) (*wire.Answer, error) {
	conn, err := wire.Acquire(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	defer s.release(ctx, conn)
	a, _, err := wire.Send(ctx, conn.Conn().PgConn(), s.transactSQL(sql, behind))
	return a, wire.Reached(err)
}

func (s *Store) transactSQL(sql, behind string) string {
	return fmt.Sprintf("%s; set local lock_timeout = %d; %s; commit; %s", beginRC, ms(s.cfg.LockTimeout), sql, behind)
}

// release gives back the connection of a transaction of the store's own.
func (s *Store) release(ctx context.Context, conn *pgxpool.Conn) {
	if pg := conn.Conn().PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		ctx, cancel := s.cleanup(ctx)
		defer cancel()
		_, _ = conn.Exec(ctx, "rollback") // if it fails, the pool closes the connection
	}
	conn.Release()
}

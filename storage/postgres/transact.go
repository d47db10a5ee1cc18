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
// is the result. after, if not empty, runs after that, and may have failed. If the
// connection was closed, perhaps before it left the pool, sql is run again on another
// one. It may have committed the first time: then at worst a rejection is counted twice.
func (s *Store) transact(ctx context.Context, sql, after string) (a *wire.Answer, err error) {
	for range tries {
		var lost bool
		a, lost, err = s.transactOnce(ctx, sql, after)
		switch {
		case lost:
			err = wire.Lost(err)
		case sqlstate.Of(err) != sqlstate.Terminated:
			return a, err
		}
	}
	return a, err
}

// transactOnce is transact on one connection. lost reports that the connection was closed
// without a word of the server's.
func (s *Store) transactOnce(ctx context.Context, sql, after string) (a *wire.Answer, lost bool, err error) {
	conn, err := wire.Acquire(ctx, s.pool)
	if err != nil {
		return nil, false, err
	}
	defer s.release(ctx, conn)
	pg := conn.Conn().PgConn()
	a, _, err = wire.Send(ctx, pg, s.transactSQL(sql, after))
	return a, err != nil && pg.IsClosed() && ctx.Err() == nil && sqlstate.Of(err) == "" && !a.Answered(), wire.Reached(err)
}

func (s *Store) transactSQL(sql, after string) string {
	return fmt.Sprintf("%s; set local lock_timeout = %d; %s; commit; %s", beginRC, ms(s.cfg.LockTimeout), sql, after)
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

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
// connection was lost, at whatever point, or the server is away, sql is run again on another
// one. It may have committed the first time: then at worst a rejection is counted twice.
func (s *Store) transact(ctx context.Context, sql, after string) (a *wire.Answer, err error) {
	for range tries {
		var again bool
		if a, again, err = s.transactOnce(ctx, sql, after); !again {
			break
		}
	}
	return a, err
}

// transactOnce is transact on one connection. again reports that sql may succeed on another one.
func (s *Store) transactOnce(ctx context.Context, sql, after string) (a *wire.Answer, again bool, err error) {
	conn, err := wire.Acquire(ctx, s.pool)
	if err != nil {
		return nil, false, err
	}
	defer s.release(ctx, conn)
	pg := conn.Conn().PgConn()
	a, _, err = wire.SendOwn(ctx, pg, s.transactSQL(sql, after))
	switch {
	case err == nil || ctx.Err() != nil:
		return a, false, err
	case wire.Away(err):
		wire.CloseNow(pg)
		return a, true, err
	case !a.Whole() && sqlstate.Of(err) == "":
		return a, true, wire.Lost(err)
	}
	return a, false, wire.Reached(err)
}

// transactSQL lifts the statement_timeout of the session: that of a role may be shorter than the
// wait for a lock, after which a claim evicts, or than the pauses of an eviction.
func (s *Store) transactSQL(sql, after string) string {
	const patient = "set local statement_timeout = 0; "
	if after != "" {
		after = s.sql.after + patient + after
	}
	return fmt.Sprintf("%s; %sset local lock_timeout = %d; %s; commit; %s", beginRC, patient, ms(s.cfg.times.Lock), sql, after)
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

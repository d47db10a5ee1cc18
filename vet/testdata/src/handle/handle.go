package handle

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"gorm.io/gorm"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardsql"
)

type dbtx interface {
	Exec(context.Context, string, ...interface{}) (pgconn.CommandTag, error)
	QueryRow(context.Context, string, ...interface{}) pgx.Row
}

// Queries is as sqlc generates it.
type Queries struct{ db dbtx }

func New(db dbtx) *Queries { return &Queries{db} }

func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{tx} }

func (q *Queries) Take(ctx context.Context) error {
	_, err := q.db.Exec(ctx, "update stock set qty = qty - 1")
	return err
}

type service struct {
	g       *fencekit.Client
	pool    *pgxpool.Pool
	db      *sql.DB
	queries *Queries
	gorm    *gorm.DB
	tx      pgx.Tx
}

var global *pgx.Conn

func (s *service) around(ctx context.Context, conn *pgxpool.Conn, other pgx.Tx) error {
	return guard.Do(ctx, s.g, "a", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.pool.Exec(ctx, "select 1"); err != nil { // want `s.pool is another connection than the guarded transaction's: .*; use the transaction, or s.pool before or after the call`
			return err
		}
		conn.QueryRow(ctx, "select 1")                                                             // want `conn is another connection`
		global.QueryRow(ctx, "select 1")                                                           // want `global is another connection`
		other.QueryRow(ctx, "select 1")                                                            // want `other is another connection`
		s.db.QueryRowContext(ctx, "select 1")                                                      // want `s.db is another connection`
		s.gorm.Exec("select 1")                                                                    // want `s.gorm is another connection`
		read(ctx, s.pool)                                                                          // want `s.pool is another connection`
		copyTo(ctx, tx, s.pool)                                                                    // want `s.pool is another connection`
		s.stock(ctx)                                                                               // want `s.stock uses s.pool, another connection than .*; give it the transaction, or call it before or after`
		s.indirectly(ctx)                                                                          // want `s.indirectly uses s.pool`
		err := pgx.BeginFunc(ctx, s.pool, func(inner pgx.Tx) error { return s.write(ctx, inner) }) // want `s.pool is another connection`
		if err != nil {
			return err
		}
		return s.queries.Take(ctx) // want `s.queries is another connection` `s.queries.Take uses q.db`
	})
}

func (s *service) byName(ctx context.Context) error {
	if err := guard.Do(ctx, s.g, "a", s.guarded); err != nil {
		return err
	}
	if err := s.locked(ctx, func(ctx context.Context, tx pgx.Tx) error {
		s.pool.Reset() // want `s.pool is another connection`
		return nil
	}); err != nil {
		return err
	}
	run := func(ctx context.Context, tx pgx.Tx) (int, error) { return s.stock(ctx), nil } // want `s.stock uses s.pool`
	_, err := guard.Value(ctx, s.g, "a", run)
	return err
}

func (s *service) guarded(ctx context.Context, tx pgx.Tx) error {
	_, err := s.pool.Exec(ctx, "select 1") // want `s.pool is another connection`
	return err
}

func (s *service) locked(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return guard.Do(ctx, s.g, "a", fn)
}

func (s *service) stock(ctx context.Context) (n int) {
	s.pool.QueryRow(ctx, "select 1").Scan(&n)
	return n
}

func (s *service) indirectly(ctx context.Context) int { return s.stock(ctx) }

func (s *service) write(ctx context.Context, tx pgx.Tx) error { return New(tx).Take(ctx) }

func read(ctx context.Context, db dbtx) {}

func copyTo(ctx context.Context, to, from dbtx) {}

func (s *service) sql(ctx context.Context) error {
	return guard.Do(ctx, s.g, "a", guardsql.With(func(ctx context.Context, db *sql.DB) error {
		if _, err := db.ExecContext(ctx, "select 1"); err != nil {
			return err
		}
		_, err := s.db.ExecContext(ctx, "select 1") // want `s.db is another connection`
		return err
	}))
}

// From here on nothing is found.

type key struct{}

// conn has the transaction of the context, if there is one.
func (s *service) conn(ctx context.Context) dbtx {
	if tx, ok := ctx.Value(key{}).(pgx.Tx); ok {
		return tx
	}
	return s.pool
}

func (s *service) save(ctx context.Context) error {
	_, err := s.conn(ctx).Exec(ctx, "select 1")
	return err
}

func bind(ctx context.Context, base *gorm.DB, db *sql.DB) *gorm.DB { return base }

func (s *service) right(ctx context.Context) (err error) {
	var later []func()
	s.pool.QueryRow(ctx, "select 1")
	err = guard.Do(ctx, s.g, "a", func(ctx context.Context, tx pgx.Tx) error {
		if s.pool == nil || s.pool.Stat().TotalConns() > 4 {
			return nil
		}
		if err := s.queries.WithTx(tx).Take(ctx); err != nil {
			return err
		}
		if err := s.save(context.WithValue(ctx, key{}, tx)); err != nil {
			return err
		}
		later = append(later, func() { s.pool.Reset() })
		s.tx = tx
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		defer savepoint.Rollback(ctx)
		return errorsOf(s.write(ctx, savepoint), New(tx).Take(ctx), savepoint.Commit(ctx))
	})
	if err != nil {
		return err
	}
	err = guard.Do(ctx, s.g, "a", guardsql.With(func(ctx context.Context, db *sql.DB) error {
		return bind(ctx, s.gorm, db).Exec("select 1").Error
	}))
	if err != nil {
		return err
	}
	if _, err := guard.Value(ctx, s.g, "a", func(ctx context.Context, tx pgx.Tx) (n int, err error) {
		err = guardsql.With(func(ctx context.Context, db *sql.DB) error {
			return db.QueryRowContext(ctx, "select 1").Scan(&n)
		})(ctx, tx)
		return n, err
	}); err != nil {
		return err
	}
	return guard.Hold(ctx, s.g, "a", func(ctx context.Context, h fencekit.Runner) error {
		if s.stock(ctx) == 0 { // between two transactions
			return nil
		}
		return guard.Do(ctx, h, "a", func(ctx context.Context, tx pgx.Tx) error { return s.write(ctx, tx) })
	})
}

func errorsOf(errs ...error) error { return errs[0] }

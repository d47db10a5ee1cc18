package control

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

var postgresAdvisory = Control{
	Name:   "postgres-advisory",
	Title:  "Postgres advisory lock of a session",
	Recipe: "Takes pg_advisory_lock on its own connection, and works over the pool.",
	Flaw:   "The lock's connection is cut, which releases the lock, while the work goes on over another connection.",
	Open: func(_ context.Context, s Servers, label string) (Lock, error) {
		cfg, err := pgx.ParseConfig(s.Postgres)
		if err != nil {
			return nil, err
		}
		cfg.RuntimeParams["application_name"] = label
		return &advisory{cfg}, nil
	},
}

type advisory struct{ cfg *pgx.ConnConfig }

func (l *advisory) Acquire(ctx context.Context, resource string) (Held, error) {
	conn, err := pgx.ConnectConfig(ctx, l.cfg)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtextextended($1, 0))", resource); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return advisoryHeld{conn: conn}, nil
}

func (l *advisory) Close(context.Context) error { return nil }

// advisoryHeld is a connection that has the lock.
type advisoryHeld struct {
	unchecked
	conn *pgx.Conn
}

// Release unlocks and closes the connection, which would unlock as well.
func (h advisoryHeld) Release(ctx context.Context) error {
	_, err := h.conn.Exec(ctx, "select pg_advisory_unlock_all()")
	return errors.Join(err, h.conn.Close(ctx))
}

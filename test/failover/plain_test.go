package failover_test

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

var errOldPrimary = errors.New("the old primary still commits")

// plainWrites writes without the guard, through the same HAProxy, until another Postgres than the
// one with this port has committed. It returns a channel that gets the time of that: what the first
// sale takes longer is the guard's.
func plainWrites(ctx context.Context, dsn string, port int) <-chan time.Time {
	first := make(chan time.Time, 1)
	go func() {
		_ = untilThere(ctx, func(ctx context.Context) error {
			conn, err := pgx.Connect(ctx, dsn)
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			var on int
			if err := conn.QueryRow(ctx, "insert into plain default values returning inet_server_port()").Scan(&on); err != nil {
				return err
			}
			if on == port {
				return errOldPrimary
			}
			first <- time.Now()
			return nil
		})
	}()
	return first
}

package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// link is the Locker's own connection, beside those of the pool, which may be in use. On it the Locker renews, looks
// and listens. Behind a pooler, which the backend's number shows, it doesn't listen: one in transaction mode changes
// the server connection.
type link struct {
	*database
	woken    func(holder string) // "": any may have been missed
	requests chan *request
	deaf     atomic.Bool // behind a pooler
}

type request struct {
	ctx     context.Context
	channel string // to listen on from then on, unless it is empty
	sql     string
	done    chan struct{}
	rows    [][]string
	err     error
}

func (k *link) call(ctx context.Context, channel, function string, args ...any) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, k.limit)
	defer cancel()
	r := &request{ctx: ctx, channel: channel, sql: k.sql(function, args...), done: make(chan struct{})}
	select {
	case k.requests <- r:
	case <-ctx.Done():
		return nil, ended(ctx, function)
	}
	select {
	case <-r.done:
		return r.rows, r.err
	case <-ctx.Done():
		return nil, ended(ctx, function)
	}
}

func (k *link) run(ctx context.Context) {
	var (
		conn               *pgx.Conn
		r                  *request
		channel, listensOn string
	)
	defer func() { closeConn(ctx, conn) }()
	for ctx.Err() == nil {
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = k.connect(ctx)
			listensOn = ""
		}
		if r != nil {
			channel = cmp.Or(r.channel, channel)
		}
		if err == nil && !k.deaf.Load() && channel != listensOn {
			if _, err = k.exec(ctx, conn.PgConn(), "unlisten *; listen "+channel); err == nil {
				listensOn = channel
				k.woken("")
			}
		}
		if r != nil {
			if r.err = cmp.Or(err, r.ctx.Err()); r.err == nil {
				r.rows, r.err = k.exec(r.ctx, conn.PgConn(), r.sql)
			}
			close(r.done)
		}
		if err == nil {
			r = k.next(ctx, conn)
			continue
		}
		closeConn(ctx, conn)
		wait, cancel := context.WithTimeout(ctx, time.Second)
		r = k.next(wait, nil)
		cancel()
	}
}

// next returns the next request. It returns nil if there is a notification before, the connection breaks, or ctx ends.
func (k *link) next(ctx context.Context, conn *pgx.Conn) *request {
	if conn == nil || k.deaf.Load() {
		select {
		case r := <-k.requests:
			return r
		case <-ctx.Done():
			return nil
		}
	}
	wait, cancel := context.WithCancel(ctx)
	next := make(chan *request, 1)
	go func() {
		defer cancel()
		next <- k.next(wait, nil)
	}()
	if notification, err := conn.WaitForNotification(wait); err == nil {
		k.woken(decode(notification.Payload))
	}
	cancel()
	return <-next
}

// connect makes a connection with all that the pool's configuration says, but not out of the pool.
func (k *link) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, k.limit)
	defer cancel()
	cfg := k.pool.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 1, 0, 0
	cfg.ConnConfig.OnNotification = nil // WaitForNotification would not get what it gets
	// Another handler may take long to end WaitForNotification.
	cfg.ConnConfig.BuildContextWatcherHandler = func(pg *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: pg.Conn()}
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := pooled.Hijack()
	rows, err := k.exec(ctx, conn.PgConn(), "select pg_catalog.pg_backend_pid()")
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	k.deaf.Store(rows[0][0] != fmt.Sprint(conn.PgConn().PID()))
	return conn, nil
}

func closeConn(ctx context.Context, conn *pgx.Conn) {
	if conn != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}
}

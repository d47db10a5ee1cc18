package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence/internal/session"
)

// link is the Locker's own connection. It renews and looks there, so that a pool whose connections are all in use
// costs no lease, and listens. Behind a pooler, which the backend's number shows, it doesn't listen: one in
// transaction mode changes the server connection.
type link struct {
	database *database
	woken    func(holder string) // "": any may have been missed

	mu        sync.Mutex
	channel   string
	changed   bool // since it was last listened on
	listens   bool
	requests  []*request
	interrupt context.CancelFunc
}

type request struct {
	ctx  context.Context
	sql  string
	done chan struct{}
	rows [][]string
	err  error
}

// call runs sql, and from then on listens on a channel, unless that is "".
func (k *link) call(ctx context.Context, sql, channel string) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, k.database.limit)
	defer cancel()
	r := &request{ctx: ctx, sql: sql, done: make(chan struct{})}
	k.mu.Lock()
	k.requests = append(k.requests, r)
	if channel != "" {
		k.channel, k.changed = channel, true
	}
	if k.interrupt != nil {
		k.interrupt()
	}
	k.mu.Unlock()
	select {
	case <-r.done:
		return r.rows, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
	}
}

func (k *link) listening() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.listens
}

// next returns the next request, or a context that ends when there is one.
func (k *link) next(ctx context.Context) (*request, context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.interrupt != nil {
		k.interrupt()
		k.interrupt = nil
	}
	if len(k.requests) > 0 {
		r := k.requests[0]
		k.requests = k.requests[1:]
		return r, nil
	}
	wait, cancel := context.WithCancel(ctx)
	k.interrupt = cancel
	return nil, wait
}

func (k *link) run(ctx context.Context) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.database.limit)
			defer cancel()
			_ = conn.Close(closing)
		}
	}()
	for n := 0; ctx.Err() == nil; {
		r, wait := k.next(ctx)
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = k.connect(ctx)
		}
		if err == nil {
			err = k.listen(ctx, conn)
		}
		switch {
		case err != nil:
			if r != nil {
				r.err = unsentError{err}
				close(r.done)
			}
			session.Pause(ctx, n)
			n++
			continue
		case r != nil:
			if r.err = r.ctx.Err(); r.err == nil {
				r.rows, r.err = k.database.exec(r.ctx, conn.PgConn(), r.sql)
			}
			close(r.done)
		case !k.listening():
			<-wait.Done()
		default:
			if notification, err := conn.WaitForNotification(wait); notification != nil {
				k.woken(decode(notification.Payload))
			} else if err == nil {
				k.woken("") // the pool's OnNotification has got it
			}
		}
		n = 0
	}
}

// connect takes a connection out of the pool.
func (k *link) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, k.database.limit)
	defer cancel()
	pooled, err := k.database.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := pooled.Hijack()
	rows, err := k.database.exec(ctx, conn.PgConn(), "select pg_catalog.pg_backend_pid()")
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listens, k.changed = rows[0][0] == fmt.Sprint(conn.PgConn().PID()), true
	return conn, nil
}

func (k *link) listen(ctx context.Context, conn *pgx.Conn) error {
	k.mu.Lock()
	channel, due := k.channel, k.channel != "" && k.changed && k.listens
	k.changed = k.changed && !due
	k.mu.Unlock()
	if !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.database.limit)
	defer cancel()
	_, err := k.database.exec(ctx, conn.PgConn(), "unlisten *; listen "+channel)
	if err != nil {
		_ = conn.Close(ctx)
		return err
	}
	k.woken("")
	return nil
}

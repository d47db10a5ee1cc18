package wire

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Acquire is pool.Acquire, but doesn't leave all its time to the pings of connections that the network has forgotten:
// after 3 s, or a third of ctx's time, it resets the pool, since the other idle ones may be as old, and takes a new
// one. silent reports whether that was so. pgx gives the place of the silent one back after 15 s.
func Acquire(ctx context.Context, pool *pgxpool.Pool) (conn *pgxpool.Conn, silent bool, err error) {
	p := &pings{Context: ctx}
	if conn, err = pool.Acquire(p); err == nil || p.now() != over {
		return conn, false, err
	}
	pool.Reset()
	conn, err = pool.Acquire(ctx)
	return conn, true, err
}

const patience = 3 * time.Second

// pings is the context of an acquisition, which has a deadline of its own once that is asked for: pgxpool does so
// before a ping, and looks at Done again after it. A timer would cost each acquisition more, and one that waits for
// another call would lose its turn.
type pings struct {
	context.Context
	mu       sync.Mutex
	deadline time.Time
}

func (p *pings) Deadline() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deadline.IsZero() {
		limit := patience
		if end, ok := p.Context.Deadline(); ok {
			limit = min(limit, time.Until(end)/3)
		}
		p.deadline = time.Now().Add(limit)
	}
	return p.deadline, true
}

func (p *pings) Done() <-chan struct{} { return p.now().Done() }
func (p *pings) Err() error            { return p.now().Err() }

var over, _ = context.WithTimeout(context.Background(), 0)

func (p *pings) now() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Context.Err() == nil && !p.deadline.IsZero() && !time.Now().Before(p.deadline) {
		return over
	}
	return p.Context
}

// QueryRow is pool.QueryRow on a connection of Acquire.
func QueryRow(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) pgx.Row {
	return row(func(dest ...any) error {
		conn, _, err := Acquire(ctx, pool)
		if err != nil {
			return err
		}
		defer conn.Release()
		return conn.QueryRow(ctx, sql, args...).Scan(dest...)
	})
}

type row func(dest ...any) error

func (r row) Scan(dest ...any) error { return r(dest...) }

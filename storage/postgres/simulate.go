package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage"
)

// Pool returns the pool of NewStore.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Simulated is for guardtest.Simulate. It returns a Store like s on a pool of its own, like that of s. This calls step
// before each statement that is traced, and with "" after it, and done closes it. waits reports whether one of its
// sessions waits for locks that only idle sessions, and such as wait too, have. kill ends its sessions, and lets it open
// no more.
func (s *Store) Simulated(step func(statement string)) (own storage.Store[pgx.Tx], waits func(context.Context) bool, kill func(context.Context), done func(), err error) {
	cfg := s.pool.Config()
	name := "simulated " + rand.Text()
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	cfg.ConnConfig.Tracer = steps(step)
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	alive, end := context.WithCancel(context.Background())
	prepare := cfg.BeforeConnect
	cfg.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		if alive.Err() != nil {
			return errors.New("postgres: the simulated process was killed")
		}
		if prepare != nil {
			return prepare(ctx, conn)
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(alive, cfg)
	if err != nil {
		end()
		return nil, nil, nil, nil, err
	}
	store, err := NewStore(pool, &s.cfg)
	if err == nil {
		store.simulated = true
		store.ready.Store(s.ready.Load())
	}
	waits = func(ctx context.Context) (waits bool) {
		return s.pool.QueryRow(ctx, waitsForIdle, name).Scan(&waits) == nil && waits
	}
	kill = func(ctx context.Context) {
		end()
		for left, err := 1, error(nil); left > 0 && err == nil; { // pg_terminate_backend itself looks every 100 ms only
			err = s.pool.QueryRow(ctx, "select count(pg_catalog.pg_terminate_backend(pid)) from pg_catalog.pg_stat_activity where application_name = $1", name).Scan(&left)
		}
	}
	done = func() {
		end()
		pool.Close()
	}
	return store, waits, kill, done, err
}

const waitsForIdle = `select exists (select from pg_catalog.pg_stat_activity waiting where application_name = $1 and wait_event_type = 'Lock' and
	(select bool_and(state like 'idle in transaction%' or wait_event_type = 'Lock') from pg_catalog.pg_stat_activity
	  where pid = any (pg_catalog.pg_blocking_pids(waiting.pid))))`

// steps is a tracer.
type steps func(statement string)

func (s steps) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	statement := strings.Join(strings.Fields(data.SQL), " ")
	if len(data.Args) > 0 {
		statement += fmt.Sprintf("  %v", data.Args)
	}
	s(statement)
	return ctx
}

func (s steps) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { s("") }

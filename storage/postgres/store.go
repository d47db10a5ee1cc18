package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage"

	"github.com/fencekit/fencekit/fence"
)

// Store keeps fences in a PostgreSQL database and runs guarded transactions in
// it. It is a storage.Store and a storage.History. Its methods may be called from
// several goroutines.
type Store struct {
	pool  *pgxpool.Pool
	cfg   Config
	ready atomic.Bool
	sql   queries

	unlisted time.Duration // see the constant

	deferrable deferrable

	// Of the pool's connections:
	mode   pgx.QueryExecMode
	tracer pgx.QueryTracer // nil if they have none
}

var (
	_ storage.GroupStore[pgx.Tx] = (*Store)(nil)
	_ storage.History            = (*Store)(nil)
)

// NewStore returns a Store on pool, which stays the caller's: close it after the
// last use of the Store. cfg may be nil. NewStore doesn't contact the server;
// see Store.Check.
func NewStore(pool *pgxpool.Pool, cfg *Config) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: postgres.NewStore needs a pool", fence.ErrInvalid)
	}
	c := cfg.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	conn := pool.Config().ConnConfig
	return &Store{
		pool: pool, cfg: c, sql: newQueries(c), unlisted: unlisted,
		mode: conn.DefaultQueryExecMode, tracer: conn.Tracer,
	}, nil
}

// newTxID returns a random number that no other transaction has.
func newTxID() storage.TxID {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		if id := storage.TxID(binary.BigEndian.Uint64(b[:]) >> 1); id != 0 {
			return id
		}
	}
}

// cleanup returns a context for what must be done although ctx may have ended.
func (s *Store) cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.times.Cleanup)
}

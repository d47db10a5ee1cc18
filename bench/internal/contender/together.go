package contender

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/bench/internal/load"
)

// Together runs operations one after another on one connection, as many as each says in one
// transaction. An operation counts as done before its COMMIT, and none can be undone alone. So it
// bounds the rate of functions that share transactions.
func Together(each int) load.Open {
	return func(ctx context.Context, t *load.Target) (*load.Work, error) {
		pool, err := newPool(ctx, t)
		if err != nil {
			return nil, err
		}
		s := &together{pool: pool, each: each}
		return &load.Work{
			Do:    func(ctx context.Context, goroutine int) error { return s.do(ctx, t.Item(goroutine)) },
			Close: s.close,
		}, nil
	}
}

type together struct {
	pool *pgxpool.Pool
	each int

	mu sync.Mutex
	tx pgx.Tx // nil between two transactions
	n  int    // operations in it
}

func (s *together) do(ctx context.Context, item load.Item) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tx == nil {
		if s.tx, err = s.pool.Begin(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	if err := sell(ctx, s.tx, readQty, item.SKUs); err != nil {
		return err
	}
	if s.n++; s.n < s.each {
		return nil
	}
	return s.commit(ctx)
}

// commit ends the transaction, if there is one. The caller holds mu.
func (s *together) commit(ctx context.Context) error {
	if s.tx == nil {
		return nil
	}
	tx := s.tx
	s.tx, s.n = nil, 0
	return tx.Commit(ctx)
}

func (s *together) close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.pool.Close()
	return s.commit(ctx)
}

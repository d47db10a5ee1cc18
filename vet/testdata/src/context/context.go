package context

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
)

type service struct {
	g   *fencekit.Client
	ctx context.Context
}

func (s *service) others(outer context.Context, r *http.Request) error {
	return guard.Do(outer, s.g, "a", func(ctx context.Context, tx pgx.Tx) error {
		tx.QueryRow(outer, "select 1")                           // want `outer is not the guarded function's own context: it goes on when the lease is lost, and has no grants; use the context that the function gets`
		tx.QueryRow(r.Context(), "select 1")                     // want `r.Context\(\) is not the guarded function's own context`
		tx.QueryRow(s.ctx, "select 1")                           // want `s.ctx is not`
		tx.QueryRow(context.Background(), "select 1")            // want `context.Background\(\) is not`
		tx.QueryRow(context.TODO(), "select 1")                  // want `context.TODO\(\) is not`
		short, cancel := context.WithTimeout(outer, time.Second) // want `outer is not`
		defer cancel()
		return tx.QueryRow(short, "select 1").Scan()
	})
}

func (s *service) unnamed(ctx context.Context) error {
	return guard.Do(ctx, s.g, "a", func(_ context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select 1").Scan() // want `ctx is not`
	})
}

func (s *service) hold(outer context.Context) error {
	return guard.Hold(outer, s.g, "a", func(ctx context.Context, h fencekit.Runner) error {
		if len(guard.Grants(outer)) == 0 { // want `outer is not`
			return nil
		}
		return guard.Do(outer, h, "a", s.named) // want `outer is not`
	})
}

func (s *service) named(ctx context.Context, tx pgx.Tx) error {
	return tx.QueryRow(s.ctx, "select 1").Scan() // want `s.ctx is not`
}

func (s *service) right(outer context.Context) error {
	outer, cancel := context.WithTimeout(outer, time.Second)
	defer cancel()
	err := guard.Do(outer, s.g, "a", func(ctx context.Context, tx pgx.Tx) error {
		s.ctx = ctx
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return tx.QueryRow(short, "select 1").Scan()
	})
	if err != nil {
		return err
	}
	return guard.Hold(outer, s.g, "a", func(ctx context.Context, h fencekit.Runner) error {
		defer func() { // undoes what the bank has reserved, also when the lease is lost
			undo, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			<-undo.Done()
		}()
		return guard.Do(ctx, h, "a", func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "select 1").Scan()
		})
	})
}

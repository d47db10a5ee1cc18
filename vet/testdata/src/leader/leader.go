// Package leader is a scheduler that one process at a time runs, and a receiver that writes under its grants.
package leader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
)

const name = "scheduler"

type scheduler struct {
	guard *fencekit.Client
	pool  *pgxpool.Pool
	url   string
	log   *slog.Logger
	ctx   context.Context // of the process
}

func (s *scheduler) run() error {
	election, err := s.guard.Election(name)
	if err != nil {
		return err
	}
	for s.ctx.Err() == nil {
		err := s.term(election)
		if !guard.SafeToStartOver(err) {
			return err
		}
		s.log.WarnContext(s.ctx, "campaigns again", "error", err)
		time.Sleep(time.Second)
	}
	return context.Cause(s.ctx)
}

func (s *scheduler) term(election fence.Election) error {
	leadership, err := election.Campaign(s.ctx, "a")
	if err != nil {
		return err
	}
	defer leadership.Resign(context.WithoutCancel(s.ctx))
	on := s.guard.UnderLease(leadership)
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-leadership.Done():
			return leadership.Err()
		}
		due, err := s.due(s.ctx)
		if err != nil {
			return err
		}
		for _, id := range due {
			if err := s.dispatch(s.ctx, on, id); err != nil {
				return err
			}
		}
	}
}

// due reads candidates. dispatch looks again.
func (s *scheduler) due(ctx context.Context) ([]int64, error) {
	rows, err := s.pool.Query(ctx, "select id from slot where next_run <= now() order by next_run")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

func (s *scheduler) dispatch(ctx context.Context, on fencekit.Runner, id int64) error {
	return guard.Do(ctx, on, name, func(ctx context.Context, tx pgx.Tx) error {
		var next time.Time
		var every time.Duration
		err := tx.QueryRow(ctx, "select next_run, every from slot where id = $1 and next_run <= now()", id).Scan(&next, &every)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into run (slot, at) values ($1, $2)", id, next); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "update slot set next_run = $2 where id = $1", id, next.Add(every))
		return err
	})
}

// restock asks the warehouse under the scheduler's lock on the product.
func (s *scheduler) restock(ctx context.Context, sku string, n int) error {
	resource := "sku/" + sku
	return guard.Hold(ctx, s.guard, resource, func(ctx context.Context, h fencekit.Runner) error {
		var supplier string
		if err := s.pool.QueryRow(ctx, "select supplier from product where sku = $1", sku).Scan(&supplier); err != nil {
			return err
		}
		taken, err := s.ask(ctx, supplier, sku, n)
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, undone := s.ask(undo, supplier, sku, -n)
			return errors.Join(err, undone)
		}
		return guard.Do(ctx, h, resource, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "update stock set qty = qty + $2, supplier = $3 where sku = $1", sku, taken, supplier)
			return err
		})
	})
}

func (s *scheduler) ask(ctx context.Context, supplier, sku string, n int) (taken int, err error) {
	body, err := json.Marshal(n)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/"+supplier+"/"+sku, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	guardhttp.SetGrants(r.Header, guard.Grants(ctx)...)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	return taken, json.NewDecoder(answer.Body).Decode(&taken)
}

// receive is the warehouse: it has a database of its own, and writes under the grants of the request.
func receive(g *guard.Guard[pgx.Tx], pool *pgxpool.Pool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var n int
		grants, err := guardhttp.Grants(r.Header)
		if err = errors.Join(err, json.NewDecoder(r.Body).Decode(&n)); err != nil {
			guardhttp.Error(w, r, err)
			return
		}
		var known bool
		if err := pool.QueryRow(r.Context(), "select true from shelf where sku = $1", r.PathValue("sku")).Scan(&known); err != nil {
			http.NotFound(w, r)
			return
		}
		taken, err := guard.Value(r.Context(), g.UnderGrant(grants...), "sku/"+r.PathValue("sku"), func(ctx context.Context, tx pgx.Tx) (int, error) {
			return take(ctx, tx, r.PathValue("sku"), n)
		}, guard.Once(r.Header.Get("Idempotency-Key"), []byte(r.URL.Path)))
		if err != nil {
			guardhttp.Error(w, r, err)
			return
		}
		_ = json.NewEncoder(w).Encode(taken)
	}
}

func take(ctx context.Context, tx pgx.Tx, sku string, n int) (int, error) {
	var have int
	if err := tx.QueryRow(ctx, "select qty from shelf where sku = $1", sku).Scan(&have); err != nil {
		return 0, err
	}
	taken := min(n, have)
	_, err := tx.Exec(ctx, "update shelf set qty = $2 where sku = $1", sku, have-taken)
	return taken, err
}

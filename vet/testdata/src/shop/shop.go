// Package shop is an HTTP service with sqlc's queries.
package shop

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"cases/shop/db"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
)

var errSoldOut = errors.New("sold out")

type server struct {
	pool    *pgxpool.Pool
	queries *db.Queries // on the pool
	guard   *fencekit.Client
	log     *slog.Logger
}

func resource(sku string) string { return "sku/" + sku }

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /skus/{sku}/sell", s.sell)
	mux.HandleFunc("POST /skus/{from}/move/{to}", s.move)
	mux.HandleFunc("GET /skus", s.list)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := errors.Join(s.pool.Ping(r.Context()), s.guard.Check(r.Context())); err != nil {
			guardhttp.Error(w, r, err)
		}
	})
	return mux
}

// locked runs fn with the queries of a guarded transaction.
func (s *server) locked(ctx context.Context, skus []string, fn func(ctx context.Context, q *db.Queries) error) error {
	var resources []string
	for _, sku := range skus {
		resources = append(resources, resource(sku))
	}
	return guard.Do(ctx, s.guard, resources, func(ctx context.Context, tx pgx.Tx) error {
		return fn(ctx, s.queries.WithTx(tx))
	}, guard.Retryable())
}

type sale struct {
	ID    int64 `json:"id"`
	Left  int32 `json:"left"`
	Total int64 `json:"total"`
}

func (s *server) sell(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	// Who buys doesn't change while they do, and whether the product exists is asked before a lock is made for it.
	customer, err := s.queries.CustomerOf(ctx, r.Header.Get("Authorization"))
	if err != nil {
		http.Error(w, "log in", http.StatusUnauthorized)
		return
	}
	shown, err := s.queries.GetStock(ctx, r.PathValue("sku"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	answer, err := guard.Value(ctx, s.guard, resource(shown.Sku), func(ctx context.Context, tx pgx.Tx) (sale, error) {
		q := db.New(tx)
		stock, err := q.GetStock(ctx, shown.Sku)
		if err != nil {
			return sale{}, err
		}
		if stock.Qty < 1 || stock.Price != shown.Price {
			return sale{}, errSoldOut
		}
		if err := q.SetStock(ctx, db.SetStockParams{Sku: shown.Sku, Qty: stock.Qty - 1}); err != nil {
			return sale{}, err
		}
		id, err := q.CreateSale(ctx, db.CreateSaleParams{Customer: customer, Sku: shown.Sku, Qty: 1, Total: shown.Price})
		s.log.InfoContext(ctx, "sells", "id", id, "connections", s.pool.Stat().AcquiredConns())
		return sale{ID: id, Left: stock.Qty - 1, Total: stock.Price}, err
	}, guard.Once(r.Header.Get("Idempotency-Key"), []byte(shown.Sku)), guard.Retryable())
	if err != nil {
		guardhttp.Error(w, r, err)
		return
	}
	if _, err := s.pool.Exec(ctx, "insert into mail (customer, sale) values ($1, $2)", customer, answer.ID); err != nil {
		s.log.WarnContext(ctx, "no mail", "error", err)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *server) move(w http.ResponseWriter, r *http.Request) {
	from, to := r.PathValue("from"), r.PathValue("to")
	err := s.locked(r.Context(), []string{from, to}, func(ctx context.Context, q *db.Queries) error {
		var moved int32
		for _, sku := range []string{from, to} {
			stock, err := q.GetStock(ctx, sku)
			if err != nil {
				return err
			}
			if sku == from {
				moved, stock.Qty = stock.Qty, 0
			} else {
				stock.Qty += moved
			}
			if err := q.SetStock(ctx, db.SetStockParams{Sku: sku, Qty: stock.Qty}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		guardhttp.Error(w, r, err)
	}
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	var all []db.Stock
	var sold int
	group, ctx := errgroup.WithContext(r.Context())
	group.Go(func() (err error) { all, err = s.queries.ListStock(ctx); return err })
	group.Go(func() error { return s.pool.QueryRow(ctx, "select count(*) from sale").Scan(&sold) })
	if err := group.Wait(); err != nil {
		guardhttp.Error(w, r, err)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"stock": all, "sold": sold})
}

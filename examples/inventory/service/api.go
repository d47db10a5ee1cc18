// Package service is the inventory's HTTP service: the part of the example to copy from. It
// uses what Fencekit exports and nothing else.
//
// Allocating reads the lots on hand and the open reservations, decides which
// lots an order gets, oldest first, and writes reservation lines. What is written
// depends on rows that are only read, so no single atomic UPDATE can express it,
// and a server that stops between its read and its write decides on stock that
// others have sold since. [Allocate] is the part to lift out; deduct.go runs it.
package service

import (
	_ "embed"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// api answers HTTP requests. openapi.yaml describes it.
type api struct {
	guard  *guard.Guard[pgx.Tx]
	locker *etcd.Locker
	store  *postgres.Store
	pool   *pgxpool.Pool
	log    *slog.Logger
	decide Decision // how an order is served

	metrics *prometheus.Registry

	requestTimeout time.Duration // bounds the wait for a turn and the run; COMMIT has bounds of its own (guard.Config)
	readTimeout    time.Duration // bounds each read of the database, and each question whether a server is there
}

type handler func(w http.ResponseWriter, r *http.Request) error

func (a *api) routes() map[string]handler {
	return map[string]handler{
		"GET /v1/skus":               a.listSKUs,
		"GET /v1/skus/{sku}/history": a.history,
		"POST /v1/skus/{sku}/deduct": a.deduct,
		"GET /healthz":               healthz,
		"GET /readyz":                a.readyz,
		"GET /metrics":               a.scraped,
		"GET /openapi.yaml":          openAPI,
	}
}

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range a.routes() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				a.fail(w, r, err)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			w = unmatched{w}
		}
		mux.ServeHTTP(w, traced(r))
	})
}

//go:embed openapi.yaml
var openAPIFile []byte

func openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPIFile)
	return nil
}

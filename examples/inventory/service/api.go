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
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
)

// api answers HTTP requests.
type api struct {
	guard  *guard.Guard[pgx.Tx]
	pool   *pgxpool.Pool
	log    *slog.Logger
	decide Decision // how an order is served

	metrics *prometheus.Registry

	requestTimeout time.Duration // bounds the wait for a turn and the run; COMMIT has bounds of its own (guard.Config)
}

type handler func(w http.ResponseWriter, r *http.Request) error

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"POST /v1/skus/{sku}/deduct": a.deduct,
		"GET /healthz":               healthz,
		"GET /readyz":                a.readyz,
		"GET /metrics":               a.scraped,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				a.fail(w, r, err)
			}
		})
	}
	return mux
}

// problem is an answer of this service's own (RFC 9457). What guard returns is a problem of guardhttp's.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	*shortage
}

type shortage struct {
	SKU       string `json:"sku"`
	Qty       int    `json:"qty"`
	Available int    `json:"available"`
}

func newProblem(status int, name, title, detail string) *problem {
	return &problem{Type: "urn:fencekit:inventory:" + name, Title: title, Status: status, Detail: detail}
}

func badRequest(format string, args ...any) *problem {
	return newProblem(http.StatusBadRequest, "bad-request", "The request can't be understood", fmt.Sprintf(format, args...))
}

func (p *problem) Error() string { return p.Title + ": " + p.Detail }

func (p *problem) write(w http.ResponseWriter) {
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}

// fail logs what is not the client's: its text names servers, and stays here.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var own *problem
	if errors.As(err, &own) && !errors.Is(err, guard.ErrUnknownOutcome) {
		own.write(w)
		return
	}
	if status := guardhttp.Status(err); status >= http.StatusInternalServerError {
		a.log.Warn("request failed", "method", r.Method, "path", r.URL.Path, "status", status, "error", err)
	}
	guardhttp.Error(w, r, err)
}

// writeJSON ignores a client that no longer listens: its key finds the outcome.
func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	data, err := json.Marshal(body)
	if err != nil { // none of the types here can fail
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

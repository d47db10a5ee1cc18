package service

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func (a *api) scraped(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(a.metrics, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

type health struct {
	Status string `json:"status"`
}

// healthz answers GET /healthz. It asks no other server, or one outage would have all of them restarted.
func healthz(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, "application/json", health{"alive"})
	return nil
}

const readyLimit = 3 * time.Second

// readyz answers GET /readyz: whether requests can be served. What is missing is in the log.
func (a *api) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyLimit)
	defer cancel()
	if err := a.guard.Check(ctx); err != nil {
		a.log.Warn("not ready", "error", err)
		return newProblem(http.StatusServiceUnavailable, "not-ready", "Not ready", "The lock service or the database can't be used.")
	}
	writeJSON(w, http.StatusOK, "application/json", health{"ready"})
	return nil
}

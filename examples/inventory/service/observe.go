package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencekit/fencekit/storage/postgres"
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

// readyz answers GET /readyz: whether requests can be served, and if not, what is missing.
func (a *api) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), a.readTimeout)
	defer cancel()
	var lockErr, databaseErr error
	var asked sync.WaitGroup
	asked.Go(func() { lockErr = a.locker.Check(ctx) })
	asked.Go(func() { databaseErr = a.askPostgres(ctx) })
	asked.Wait()
	if err := errors.Join(lockErr, databaseErr); err != nil {
		a.log.Warn("not ready", "error", err)
		return notReady(lockErr, databaseErr)
	}
	writeJSON(w, http.StatusOK, "application/json", health{"ready"})
	return nil
}

func notReady(lockErr, databaseErr error) *problem {
	var away, details []string
	if lockErr != nil {
		away, details = append(away, "etcd"), append(details, "The lock service can't be used.")
	}
	switch {
	case errors.Is(databaseErr, errNoTables):
		away, details = append(away, "postgres"), append(details, `The tables are missing or out of date: run "inventory init" or "fencectl migrate up".`)
	case databaseErr != nil:
		away, details = append(away, "postgres"), append(details, "Postgres doesn't answer.")
	}
	p := newProblem(http.StatusServiceUnavailable, "not-ready", "Not ready", strings.Join(details, " "))
	p.Away = away
	return p
}

var errNoTables = errors.New("inventory: tables are missing")

func (a *api) askPostgres(ctx context.Context) error {
	if err := a.store.Check(ctx); err != nil {
		var notReady *postgres.NotReadyError
		if errors.As(err, &notReady) && notReady.Reason == postgres.NotMigrated {
			err = fmt.Errorf("%w: %w", errNoTables, err)
		}
		return err
	}
	var tables int
	err := a.pool.QueryRow(ctx, "select count(to_regclass(name)) from unnest(array['lot', 'reservation']) name").Scan(&tables)
	if err == nil && tables < 2 {
		err = fmt.Errorf("%w: the inventory's", errNoTables)
	}
	return err
}

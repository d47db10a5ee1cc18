package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardotel"
	"github.com/fencekit/fencekit/guardprometheus"
	"github.com/fencekit/fencekit/storage/postgres"
)

type exports struct {
	metrics   *prometheus.Registry
	observers []*guard.Observer
	tracers   *sdktrace.TracerProvider // nil if traces go nowhere
}

// newExports exports metrics, and traces if a variable of OpenTelemetry's says where to.
func newExports(ctx context.Context) (*exports, error) {
	e := &exports{metrics: prometheus.NewRegistry()}
	metrics, err := guardprometheus.NewObserver(e.metrics)
	if err != nil {
		return nil, err
	}
	e.observers = append(e.observers, metrics)
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")+os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return e, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("exporting traces: %w", err)
	}
	e.tracers = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	traces, err := guardotel.NewObserver(&guardotel.Config{TracerProvider: e.tracers, MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	e.observers = append(e.observers, traces)
	return e, nil
}

func (e *exports) close(ctx context.Context) error {
	if e.tracers == nil {
		return nil
	}
	if err := e.tracers.Shutdown(ctx); err != nil {
		return fmt.Errorf("spans were not sent: %w", err)
	}
	return nil
}

func (a *api) scraped(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(a.metrics, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// traced has the spans of a request belong to the trace of its client.
func traced(r *http.Request) *http.Request {
	return r.WithContext(propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
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

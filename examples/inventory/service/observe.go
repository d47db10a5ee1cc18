package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardotel"
	"github.com/fencekit/fencekit/guardprometheus"
)

type exports struct {
	metrics   *prometheus.Registry
	observers []*guard.Observer
	tracers   *sdktrace.TracerProvider // nil if traces go nowhere
}

// newExports exports metrics, and traces if a variable of OpenTelemetry's says where to.
func newExports(ctx context.Context) (*exports, error) {
	e := &exports{metrics: prometheus.NewRegistry()}
	metrics, err := guardprometheus.NewObserver(e.metrics, nil)
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

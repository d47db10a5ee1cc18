package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"time"

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

// exports is what a server exports of its Guard.
type exports struct {
	metrics   *prometheus.Registry
	observers []*guard.Observer
	tracers   *sdktrace.TracerProvider // nil if traces go nowhere
}

// newExports exports metrics, and traces if a variable of OpenTelemetry's says where to. The
// exporter and the provider read the others themselves: OTEL_SERVICE_NAME, for example.
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

// scraped answers GET /metrics.
func (a *api) scraped(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(a.metrics, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// traced has the spans of a request belong to the trace of its client.
func traced(r *http.Request) *http.Request {
	return r.WithContext(propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
}

// serveProfiles serves /debug/pprof on an address of this machine, and returns how to end that.
// An empty address serves nothing.
func serveProfiles(address string, log *slog.Logger) (end func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("-pprof: %w", err)
	}
	if !listener.Addr().(*net.TCPAddr).IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("-pprof is %s: profiles show what a server does, so use an address such as 127.0.0.1:6060", address), listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // it ends with end
	log.Info("profiles", "url", fmt.Sprintf("http://%s/debug/pprof/", listener.Addr()))
	return server.Close, nil
}

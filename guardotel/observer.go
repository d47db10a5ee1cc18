package guardotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/telemetry"
)

// scope is the name of the instrumentation.
const scope = "github.com/fencekit/fencekit/guardotel"

// Config configures an Observer. A nil *Config, and every zero field, means the default.
type Config struct {
	// TracerProvider makes the spans; default the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics; default the global one. To have traces alone, as
	// beside guardprometheus, set it to a noop.NewMeterProvider().
	MeterProvider metric.MeterProvider
}

// NewObserver returns an Observer for guard.Config.Observers that records spans and metrics of
// all Guards that have it. It fails with the error of the MeterProvider if that can't make an
// instrument. The first 100 classes of resources have metrics of their own; the others are
// together under the class "other". Names without a slash are classes by themselves.
func NewObserver(cfg *Config) (*guard.Observer, error) {
	c := cfg.withDefaults()
	all, err := newInstruments(c.MeterProvider.Meter(scope))
	if err != nil {
		return nil, err
	}
	m := telemetry.New(all.record)
	t := &tracing{tracer: c.TracerProvider.Tracer(scope), metrics: m}
	return t.around(m.Observer()), nil
}

func (c *Config) withDefaults() Config {
	var filled Config
	if c != nil {
		filled = *c
	}
	if filled.TracerProvider == nil {
		filled.TracerProvider = otel.GetTracerProvider()
	}
	if filled.MeterProvider == nil {
		filled.MeterProvider = otel.GetMeterProvider()
	}
	return filled
}

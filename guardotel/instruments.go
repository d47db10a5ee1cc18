package guardotel

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fencekit/fencekit/internal/telemetry"
)

// instruments are the metrics of telemetry.Definitions.
type instruments struct {
	all  [len(telemetry.Definitions)]func(ctx context.Context, value float64, attributes metric.MeasurementOption)
	sets sync.Map // of metric.MeasurementOption, by labels; as many as there are series
}

// labels are what a measurement is labelled with.
type labels struct {
	metric telemetry.Metric
	class  string
	values telemetry.Values
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	i := &instruments{}
	for m, d := range telemetry.Definitions {
		add, err := newInstrument(meter, d)
		if err != nil {
			return nil, fmt.Errorf("guardotel: %s: %w", d.OTel, err)
		}
		i.all[m] = add
	}
	return i, nil
}

func newInstrument(meter metric.Meter, d telemetry.Definition) (func(context.Context, float64, metric.MeasurementOption), error) {
	switch d.Kind {
	case telemetry.Counter:
		counter, err := meter.Int64Counter(d.OTel, metric.WithDescription(d.Help), metric.WithUnit(d.Unit))
		return func(ctx context.Context, value float64, with metric.MeasurementOption) {
			counter.Add(ctx, int64(value), with)
		}, err
	case telemetry.Gauge:
		gauge, err := meter.Int64UpDownCounter(d.OTel, metric.WithDescription(d.Help), metric.WithUnit(d.Unit))
		return func(ctx context.Context, value float64, with metric.MeasurementOption) {
			gauge.Add(ctx, int64(value), with)
		}, err
	default:
		histogram, err := meter.Float64Histogram(d.OTel, metric.WithDescription(d.Help), metric.WithUnit(d.Unit), metric.WithExplicitBucketBoundaries(d.Buckets...))
		return func(ctx context.Context, value float64, with metric.MeasurementOption) {
			histogram.Record(ctx, value, with)
		}, err
	}
}

// record is telemetry.Record.
func (i *instruments) record(ctx context.Context, m telemetry.Metric, value float64, class string, values telemetry.Values) {
	i.all[m](ctx, value, i.attributes(labels{m, class, values}))
}

func (i *instruments) attributes(of labels) metric.MeasurementOption {
	if known, ok := i.sets.Load(of); ok {
		return known.(metric.MeasurementOption)
	}
	attributes := []attribute.KeyValue{attribute.String(telemetry.ClassLabel, of.class)}
	for n, label := range telemetry.Definitions[of.metric].Labels {
		attributes = append(attributes, attribute.String(label.Name, of.values[n]))
	}
	made, _ := i.sets.LoadOrStore(of, metric.WithAttributeSet(attribute.NewSet(attributes...)))
	return made.(metric.MeasurementOption)
}

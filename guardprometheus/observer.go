// Package guardprometheus exports metrics of Guards to Prometheus:
//
//	metrics, err := guardprometheus.NewObserver(prometheus.DefaultRegisterer)
//	…
//	g, err := fencekit.New(pool, &fencekit.Config{Guard: guard.Config{Observers: []*guard.Observer{metrics}}})
//
// docs/operate.md has a table of the metrics. They are labelled by the class of
// the resource, which is the part of its name before the first slash, and never by the resource.
//
// Not covered: a Locker, or an election of one, that is used without the Guard. A paused process reports
// only once it is resumed.
package guardprometheus

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/telemetry"
)

// NewObserver returns an Observer for guard.Config.Observers that records the metrics of all
// Guards that have it, and registers them with reg. One registry takes one such Observer:
// a second one fails with a prometheus.AlreadyRegisteredError, and a nil reg is
// guard.ErrInvalid. To add constant labels, give it a prometheus.WrapRegistererWith.
//
// The first 100 classes of resources have metrics of their own, about 130 series each. The
// others are together under the class "other". Names without a slash are classes by themselves.
func NewObserver(reg prometheus.Registerer) (*guard.Observer, error) {
	if reg == nil {
		return nil, fmt.Errorf("%w: nil Registerer: use prometheus.DefaultRegisterer", guard.ErrInvalid)
	}
	var all instruments
	if err := all.register(reg); err != nil {
		return nil, err
	}
	return telemetry.New(all.record).Observer(), nil
}

// instruments are the metrics of telemetry.Definitions.
type instruments [len(telemetry.Definitions)]instrument

// instrument is a metric with its labels.
type instrument interface {
	prometheus.Collector
	record(value float64, labels ...string)
}

// register makes the instruments, and registers all or none.
func (all *instruments) register(reg prometheus.Registerer) error {
	for i, d := range telemetry.Definitions {
		all[i] = newInstrument(d)
		if err := reg.Register(all[i]); err != nil {
			for _, registered := range all[:i] {
				reg.Unregister(registered)
			}
			return fmt.Errorf("guardprometheus: register %s: %w", d.Name, err)
		}
	}
	return nil
}

// record is telemetry.Record.
func (all *instruments) record(_ context.Context, m telemetry.Metric, value float64, class string, values telemetry.Values) {
	labels := [...]string{class, values[0], values[1]}
	all[m].record(value, labels[:1+len(telemetry.Definitions[m].Labels)]...)
}

func newInstrument(d telemetry.Definition) instrument {
	labels := []string{telemetry.ClassLabel}
	for _, label := range d.Labels {
		labels = append(labels, label.Name)
	}
	switch d.Kind {
	case telemetry.Counter:
		return counter{prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, labels)}
	case telemetry.Gauge:
		return gauge{prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, labels)}
	default:
		return histogram{prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}, labels)}
	}
}

type counter struct{ *prometheus.CounterVec }

func (c counter) record(value float64, labels ...string) { c.WithLabelValues(labels...).Add(value) }

type gauge struct{ *prometheus.GaugeVec }

func (g gauge) record(value float64, labels ...string) { g.WithLabelValues(labels...).Add(value) }

type histogram struct{ *prometheus.HistogramVec }

func (h histogram) record(value float64, labels ...string) {
	h.WithLabelValues(labels...).Observe(value)
}

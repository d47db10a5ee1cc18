package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardotel"
	"github.com/fencekit/fencekit/guardprometheus"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage"
)

// observedProcess is a process with metrics and spans of its own.
type observedProcess struct {
	*process
	registry *prometheus.Registry
	spans    *tracetest.SpanRecorder
}

func newObservedProcess(t *testing.T, dsn string) *observedProcess {
	t.Helper()
	o := &observedProcess{registry: prometheus.NewPedanticRegistry(), spans: tracetest.NewSpanRecorder()}
	metrics, err := guardprometheus.NewObserver(o.registry, nil)
	require.NoError(t, err)
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.spans))
	traces, err := guardotel.NewObserver(&guardotel.Config{TracerProvider: tracers, MeterProvider: noop.NewMeterProvider()})
	require.NoError(t, err)
	o.process = newProcess(t, etcdserver.Shared(t).Endpoint(), dsn, etcd.Config{}, &guard.Config{Observers: []*guard.Observer{metrics, traces}})
	return o
}

// exported returns the values of counters and gauges that are not 0, and the number of
// observations of histograms, by name and labels.
func (o *observedProcess) exported(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := o.registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			key := family.GetName() + " " + strings.Join(labels, " ")
			if h := m.GetHistogram(); h != nil {
				values[key] = float64(h.GetSampleCount())
				if family.GetName() == "guard_token_lag" {
					values["lag "+strings.Join(labels, " ")] = h.GetSampleSum()
				}
			} else if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
				values[key] = v
			}
		}
	}
	return values
}

func lossLabel(t *testing.T, reason fence.LossReason) string {
	t.Helper()
	label, ok := map[fence.LossReason]string{fence.LossExpired: "expired", fence.LossDeleted: "deleted"}[reason]
	require.True(t, ok, reason)
	return label
}

// What two processes export is exactly what happened: a holder lost its lease while its function
// ran, another process took over, and the first one's write was rejected.
func TestObservability_CountsExactlyWhatHappened(t *testing.T) {
	dsn, pool := counters(t, "a")
	a, b := newObservedProcess(t, dsn), newObservedProcess(t, dsn)
	ctx := t.Context()
	for range 3 {
		require.NoError(t, guard.Do(ctx, a.Guard, observedSKU, increment("a"), guard.Name("sell")))
	}
	require.NoError(t, guard.Do(ctx, a.Guard, observedSKU, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select 1")
		return err
	}, guard.ReadOnly(), guard.Name("look")))
	require.Equal(t, 1.0, a.exported(t)["fence_locks_held sku"], "it is kept")

	lost, rejection := takeOver(t, a, b)
	require.NoError(t, guard.Do(ctx, a.Guard, observedSKU, increment("a"), guard.Name("again")), "b gives it up, as a waits")
	require.EqualValues(t, 5, value(t, pool, "a"))
	closeProcess(t, a.process)
	closeProcess(t, b.process)
	lostLease := "fence_leases_lost_total sku true " + lossLabel(t, lost.Reason)
	require.Eventually(t, func() bool { return a.exported(t)[lostLease] == 1 }, time.Minute, time.Millisecond, "it is reported beside the call")

	require.Equal(t, map[string]float64{
		"fence_acquires_total sku": 2, "fence_acquire_duration_seconds sku": 2, "guard_takeover_duration_seconds sku": 2,
		lostLease: 1, "guard_writes_total sku committed": 4, "guard_writes_total sku rejected": 1, "guard_reads_total sku committed": 1,
		"guard_duration_seconds sku write": 5, "guard_duration_seconds sku read": 1, "guard_batch_size sku": 6,
		"guard_rejections_total sku stale": 1, "guard_token_lag sku": 1, "lag sku": float64(rejection.Current.Token - rejection.Grant.Token),
	}, a.exported(t))
	require.Equal(t, map[string]float64{
		"fence_acquires_total sku": 1, "fence_acquire_duration_seconds sku": 1, "guard_takeover_duration_seconds sku": 1,
		"guard_writes_total sku committed": 1, "guard_duration_seconds sku write": 1, "guard_batch_size sku": 1,
	}, b.exported(t))
	requireHistory(t, newObservedProcess(t, dsn))
	requireSpans(t, a, b)
}

const observedSKU = "sku/a"

// takeOver has a lose its lease while its function runs, and b write before a does.
func takeOver(t *testing.T, a, b *observedProcess) (lost *fence.LeaseLostError, rejection *guard.RejectedError) {
	t.Helper()
	err := guard.Do(t.Context(), a.Guard, observedSKU, func(ctx context.Context, tx pgx.Tx) error {
		revokeOnce(t, t.Context(), t.Name())
		<-ctx.Done()
		require.ErrorAs(t, context.Cause(ctx), &lost)
		require.NoError(t, guard.Do(t.Context(), b.Guard, observedSKU, increment("a"), guard.Name("take over")))
		return increment("a")(context.WithoutCancel(ctx), tx)
	}, guard.Name("late"))
	require.ErrorAs(t, err, &rejection)
	require.Equal(t, storage.ReasonStale, rejection.Reason)
	return lost, rejection
}

// requireHistory requires that the history says the same as the metrics.
func requireHistory(t *testing.T, o *observedProcess) {
	t.Helper()
	kinds := map[storage.EntryKind]int{}
	entries, err := o.store.Entries(t.Context(), observedSKU, 0, 100)
	require.NoError(t, err)
	for _, e := range entries {
		kinds[e.Kind]++
	}
	require.Equal(t, map[storage.EntryKind]int{storage.KindClaim: 3, storage.KindWrite: 5}, kinds)
	rejections, err := o.store.Rejections(t.Context(), observedSKU, 100)
	require.NoError(t, err)
	require.Len(t, rejections, 1)
}

// requireSpans requires a span for each call, all of which ended.
func requireSpans(t *testing.T, a, b *observedProcess) {
	t.Helper()
	var names []string
	for _, span := range a.spans.Ended() {
		names = append(names, span.Name())
		require.Equal(t, span.Name() == "late sku", span.Status().Code == codes.Error, span.Name())
	}
	require.Equal(t, []string{"sell sku", "sell sku", "sell sku", "look sku", "late sku", "again sku"}, names)
	require.Len(t, b.spans.Ended(), 1)
	require.Equal(t, len(a.spans.Started()), len(a.spans.Ended()))
}

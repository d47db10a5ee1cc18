package guardotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/guardotel"
	"github.com/fencekit/fencekit/internal/telemetry"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a Guard, and what it exports.
type world struct {
	testing.TB
	locks    *guardtest.LockService
	store    *memory.Store
	guard    *guard.Guard[*memory.Tx]
	observer *guard.Observer
	spans    *tracetest.SpanRecorder
	tracer   trace.Tracer
	reader   *metric.ManualReader
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, locks: guardtest.NewLockService(), store: memory.NewStore(), spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	w.locks.SetToken(1)
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans))
	w.tracer = tracers.Tracer("test")
	var err error
	w.observer, err = guardotel.NewObserver(&guardotel.Config{TracerProvider: tracers, MeterProvider: metric.NewMeterProvider(metric.WithReader(w.reader))})
	require.NoError(t, err)
	w.guard, err = guard.New(w.locks.NewLocker("a"), w.store, &guard.Config{Observers: []*guard.Observer{w.observer}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.guard.Close(context.Background())) })
	return w
}

// span returns the only ended span of a name.
func (w *world) span(name string) sdktrace.ReadOnlySpan {
	w.Helper()
	var found []sdktrace.ReadOnlySpan
	for _, s := range w.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	require.Len(w, found, 1, name)
	return found[0]
}

func attributes(of []attribute.KeyValue) map[string]any {
	values := map[string]any{}
	for _, a := range of {
		values[string(a.Key)] = a.Value.AsInterface()
	}
	return values
}

func events(s sdktrace.ReadOnlySpan) (names []string) {
	for _, e := range s.Events() {
		names = append(names, e.Name)
	}
	return names
}

var errShop = errors.New("sold out")

func put(_ context.Context, tx *memory.Tx) error { return tx.Set("k", "v") }

func TestObserver_ACallIsASpanBetweenItsCallersAndItsFunctions(t *testing.T) {
	w := newWorld(t)
	ctx, request := w.tracer.Start(t.Context(), "request")
	require.NoError(t, guard.Do(ctx, w.guard, []string{"sku/42", "lot/7"}, func(ctx context.Context, tx *memory.Tx) error {
		_, query := w.tracer.Start(ctx, "query")
		query.End()
		return put(ctx, tx)
	}, guard.OpName("sell"), guard.OpID("o-1")))
	request.End()

	sell := w.span("sell lot")
	require.Equal(t, w.span("request").SpanContext().SpanID(), sell.Parent().SpanID())
	require.Equal(t, sell.SpanContext().SpanID(), w.span("query").Parent().SpanID())
	require.Equal(t, codes.Unset, sell.Status().Code)
	require.Equal(t, map[string]any{
		"fence.resources": []string{"lot/7", "sku/42"}, "fence.resource.class": "lot", "fence.tokens": []int64{1, 2},
		"guard.operation.name": "sell", "guard.operation.id": "o-1", "guard.read_only": false, "guard.outcome": "committed", "guard.runs": int64(1),
	}, attributes(sell.Attributes()))
	require.Equal(t, []string{"fence.acquired", "fence.acquired", "guard.claimed", "guard.claimed"}, events(sell))
}

func TestObserver_ASpanSaysHowManyCallsShareItsTransaction(t *testing.T) {
	w := newWorld(t)
	for size, want := range map[int]any{1: nil, 3: int64(3)} {
		operation := guard.Operation{Resources: []string{"sku/1"}, Record: storage.OpRecord{Name: fmt.Sprint("of ", size)}, Outcome: guard.OutcomeCommitted, BatchSize: size}
		w.observer.Finished(w.observer.Started(t.Context(), operation), operation)
		require.Equal(t, want, attributes(w.span(operation.Record.Name + " sku").Attributes())["guard.batch_size"])
	}
}

func TestObserver_ASpanSaysHowACallFailed(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	require.ErrorIs(t, guard.Do(ctx, w.guard, "sku/1", func(context.Context, *memory.Tx) error { return errShop }, guard.OpName("fails")), errShop)
	require.Panics(t, func() {
		_ = guard.Do(ctx, w.guard, "sku/1", func(context.Context, *memory.Tx) error { panic("boom") }, guard.OpName("panics"))
	})
	require.ErrorIs(t, guard.Do(ctx, w.guard, "sku/1", func(ctx context.Context, tx *memory.Tx) error {
		_, err := w.store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: "sku/1", Epoch: 1, Token: 9, Holder: "b"}})
		require.NoError(t, err)
		return put(ctx, tx)
	}, guard.OpName("late")), guard.ErrStaleToken)

	for name, want := range map[string]struct{ outcome, errorType, says string }{
		"fails sku":  {"failed", "failed", "sold out"},
		"panics sku": {"panicked", "panicked", "panicked"},
		"late sku":   {"rejected", "stale", "token 1 was superseded by 9"},
	} {
		span := w.span(name)
		require.Equal(t, codes.Error, span.Status().Code, name)
		require.Contains(t, span.Status().Description, want.says)
		require.Equal(t, want.outcome, attributes(span.Attributes())["guard.outcome"])
		require.Equal(t, want.errorType, attributes(span.Attributes())["error.type"])
	}
	late := w.span("late sku")
	require.Equal(t, []string{"guard.rejected", "exception"}, events(late))
	require.Equal(t, map[string]any{
		"fence.resource": "sku/1", "fence.token": int64(1), "guard.rejection.reason": "stale", "guard.rejection.stage": "seal",
		"guard.current.token": int64(9), "guard.current.holder": "b",
	}, attributes(late.Events()[0].Attributes))
}

// The span of a call whose answer to COMMIT was lost says what became of it, or that this isn't known.
func TestObserver_ASpanSaysWhatBecameOfALostAnswer(t *testing.T) {
	w := newWorld(t)
	lost := memory.Faults{Commit: func(storage.InDoubt) memory.Fate { return memory.ReplyLost }}
	w.store.SetFaults(lost)
	require.NoError(t, guard.Do(t.Context(), w.guard, "sku/1", put, guard.OpName("known")))
	known := w.span("known sku")
	require.Equal(t, []string{"fence.acquired", "guard.claimed", "guard.resolved"}, events(known))
	require.Equal(t, map[string]any{"guard.applied": true}, attributes(known.Events()[2].Attributes))

	synctest.Test(t, func(t *testing.T) { // it asks for 10 s
		w := newWorld(t)
		lost.Resolve = func(storage.InDoubt) error { return errShop }
		w.store.SetFaults(lost)
		require.ErrorIs(t, guard.Do(t.Context(), w.guard, "sku/1", put, guard.OpName("unknown")), guard.ErrUnknownOutcome)
		unknown := w.span("unknown sku")
		require.Equal(t, []string{"fence.acquired", "guard.claimed", "guard.unresolved", "exception"}, events(unknown))
		require.Equal(t, "unknown", attributes(unknown.Attributes())["error.type"])
		w.store.SetFaults(memory.Faults{})
	})
}

// A Hold is no span: its transactions are, and its lock is an event of the caller's.
func TestObserver_AHoldsTransactionsAreSpans(t *testing.T) {
	w := newWorld(t)
	ctx, request := w.tracer.Start(t.Context(), "request")
	require.NoError(t, guard.Hold(ctx, w.guard, "sku/1", func(ctx context.Context, h guard.Runner[*memory.Tx]) error {
		return errors.Join(guard.Do(ctx, h, "sku/1", put, guard.OpName("first")), guard.Do(ctx, h, "sku/1", put, guard.OpName("second")))
	}))
	request.End()
	parent := w.span("request")
	require.Equal(t, []string{"fence.acquired", "guard.claimed"}, events(parent))
	for _, name := range []string{"first sku", "second sku"} {
		require.Equal(t, parent.SpanContext().SpanID(), w.span(name).Parent().SpanID())
	}
}

// The span says that the call waited, and for how long.
func TestObserver_ASpanShowsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ended := make(chan error)
		go func() {
			ended <- guard.Do(t.Context(), w.guard, "sku/1", func(context.Context, *memory.Tx) error { time.Sleep(time.Second); return nil }, guard.OpName("first"))
		}()
		synctest.Wait()
		go func() { ended <- guard.Do(t.Context(), w.guard, "sku/1", put, guard.OpName("second")) }()
		require.NoError(t, errors.Join(<-ended, <-ended))
		second := w.span("second sku")
		require.Equal(t, []string{"guard.queued", "guard.dequeued"}, events(second))
		require.Equal(t, time.Second, second.Events()[1].Time.Sub(second.Events()[0].Time))
	})
}

// prometheusName is what OpenTelemetry's rules make of the name of a metric.
func prometheusName(m metricdata.Metrics) string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	if sum, ok := m.Data.(metricdata.Sum[int64]); ok && sum.IsMonotonic {
		name += "_total"
	}
	return name
}

// The names, units and labels are such that an exporter to Prometheus makes of them what
// guardprometheus exports, so that one dashboard fits both.
func TestObserver_MetricsTranslateToThoseOfPrometheus(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, guard.Do(t.Context(), w.guard, "sku/1", put))
	require.Error(t, guard.Do(t.Context(), w.guard.UnderGrant(fence.Grant{Resource: "sku/2", Epoch: 1, Token: 1, Holder: "h"}), "sku/2", func(ctx context.Context, tx *memory.Tx) error {
		_, err := w.store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: "sku/2", Epoch: 1, Token: 6, Holder: "b"}})
		return errors.Join(err, put(ctx, tx))
	}))
	var data metricdata.ResourceMetrics
	require.NoError(t, w.reader.Collect(t.Context(), &data))
	require.Len(t, data.ScopeMetrics, 1)
	exported := map[string]metricdata.Metrics{}
	for _, m := range data.ScopeMetrics[0].Metrics {
		exported[prometheusName(m)] = m
	}
	for _, d := range telemetry.Definitions {
		m, ok := exported[d.Name]
		require.True(t, ok, d.Name)
		require.Equal(t, d.Help, m.Description)
	}
	require.Len(t, exported, len(telemetry.Definitions))

	series := map[string]int64{}
	for _, name := range []string{"guard_writes_total", "guard_rejections_total", "fence_locks_held"} {
		for _, p := range exported[name].Data.(metricdata.Sum[int64]).DataPoints {
			if p.Value != 0 {
				series[fmt.Sprint(name, p.Attributes.Encoded(attribute.DefaultEncoder()))] = p.Value
			}
		}
	}
	require.Equal(t, map[string]int64{
		"guard_writes_totalclass=sku,outcome=committed": 1, "guard_writes_totalclass=sku,outcome=rejected": 1,
		"guard_rejections_totalclass=sku,reason=stale": 1, "fence_locks_heldclass=sku": 1,
	}, series)
	lag := exported["guard_token_lag"].Data.(metricdata.Histogram[float64]).DataPoints
	require.Len(t, lag, 1)
	require.Equal(t, 5.0, lag[0].Sum)
}

func TestNewObserver_TakesTheGlobalProviders(t *testing.T) {
	_, err := guardotel.NewObserver(nil)
	require.NoError(t, err)
}

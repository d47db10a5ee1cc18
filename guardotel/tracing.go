package guardotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/telemetry"
)

// Attributes that no semantic convention has.
const (
	resourceKey  = attribute.Key("fence.resource")
	resourcesKey = attribute.Key("fence.resources")
	classKey     = attribute.Key("fence.resource.class")
	tokenKey     = attribute.Key("fence.token")
	tokensKey    = attribute.Key("fence.tokens")
	waitKey      = attribute.Key("fence.acquire.duration") // seconds
	nameKey      = attribute.Key("guard.operation.name")
	operationKey = attribute.Key("guard.operation.id")
	readOnlyKey  = attribute.Key("guard.read_only")
	outcomeKey   = attribute.Key("guard.outcome")
	runsKey      = attribute.Key("guard.runs")
	batchKey     = attribute.Key("guard.batch_size")
	reasonKey    = attribute.Key("guard.rejection.reason")
	stageKey     = attribute.Key("guard.rejection.stage")
	currentKey   = attribute.Key("guard.current.token")
	holderKey    = attribute.Key("guard.current.holder")
	appliedKey   = attribute.Key("guard.applied")
)

// tracing makes a span of each operation.
type tracing struct {
	tracer  trace.Tracer
	metrics *telemetry.Metrics
}

// around returns an Observer that traces, and calls the functions of metrics.
func (t *tracing) around(metrics *guard.Observer) *guard.Observer {
	o := *metrics
	o.Started = t.started
	o.Queued = func(ctx context.Context, resource string, delta int) {
		metrics.Queued(ctx, resource, delta)
		name := "guard.queued"
		if delta < 0 {
			name = "guard.dequeued"
		}
		event(ctx, name, resourceKey.String(resource))
	}
	o.Acquired = func(ctx context.Context, grant fence.Grant, wait time.Duration) {
		metrics.Acquired(ctx, grant, wait)
		event(ctx, "fence.acquired", resourceKey.String(grant.Resource), tokenKey.Int64(int64(grant.Token)), waitKey.Float64(wait.Seconds()))
	}
	o.Claimed = func(ctx context.Context, grant fence.Grant, took time.Duration) {
		metrics.Claimed(ctx, grant, took)
		event(ctx, "guard.claimed", resourceKey.String(grant.Resource), tokenKey.Int64(int64(grant.Token)))
	}
	o.Rejected = func(ctx context.Context, r *guard.RejectedError) {
		metrics.Rejected(ctx, r)
		event(ctx, "guard.rejected", resourceKey.String(r.Grant.Resource), tokenKey.Int64(int64(r.Grant.Token)),
			reasonKey.String(telemetry.ReasonLabel(r.Reason)), stageKey.String(string(r.Stage)),
			currentKey.Int64(int64(r.Current.Token)), holderKey.String(r.Current.Holder))
	}
	o.Resolved = func(ctx context.Context, _ []fence.Grant, applied bool, err error, _ time.Duration) {
		if err == nil {
			event(ctx, "guard.resolved", appliedKey.Bool(applied))
		} else {
			event(ctx, "guard.unresolved")
		}
	}
	o.Finished = func(ctx context.Context, operation guard.Operation) {
		metrics.Finished(ctx, operation)
		t.finished(ctx, operation)
	}
	return &o
}

func event(ctx context.Context, name string, attributes ...attribute.KeyValue) {
	trace.SpanFromContext(ctx).AddEvent(name, trace.WithAttributes(attributes...))
}

// started begins a span. t itself is the key under which the context has it: the span of
// another Observer must not be ended.
func (t *tracing) started(ctx context.Context, operation guard.Operation) context.Context {
	class := t.metrics.Class(ctx, operation.Resources[0])
	attributes := []attribute.KeyValue{
		resourcesKey.StringSlice(operation.Resources), classKey.String(class), readOnlyKey.Bool(operation.ReadOnly),
	}
	name := "guard " + class
	if operation.Record.Name != "" {
		name = operation.Record.Name + " " + class
		attributes = append(attributes, nameKey.String(operation.Record.Name))
	}
	if operation.Record.ID != "" {
		attributes = append(attributes, operationKey.String(operation.Record.ID))
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return context.WithValue(ctx, t, span)
}

// finished ends the span that started has begun.
func (t *tracing) finished(ctx context.Context, operation guard.Operation) {
	span, ok := ctx.Value(t).(trace.Span)
	if !ok {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(outcomeKey.String(string(operation.Outcome)), runsKey.Int(operation.Runs))
	if len(operation.Grants) > 0 {
		tokens := make([]int64, len(operation.Grants))
		for i, g := range operation.Grants {
			tokens[i] = int64(g.Token)
		}
		span.SetAttributes(tokensKey.Int64Slice(tokens))
	}
	if operation.BatchSize > 1 {
		span.SetAttributes(batchKey.Int(operation.BatchSize))
	}
	t.failed(span, operation)
}

// failed notes how an operation failed, if it did.
func (t *tracing) failed(span trace.Span, operation guard.Operation) {
	switch operation.Outcome {
	case guard.OutcomeCommitted, guard.OutcomeRepeated:
		return
	case guard.OutcomePanicked:
		span.SetStatus(codes.Error, "the function panicked or ended its goroutine")
	default:
		span.RecordError(operation.Err)
		span.SetStatus(codes.Error, operation.Err.Error())
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(errorType(operation)))
}

// errorType is the reason of a rejection, or the outcome.
func errorType(operation guard.Operation) string {
	var rejection *guard.RejectedError
	if operation.Outcome == guard.OutcomeRejected && errors.As(operation.Err, &rejection) {
		return telemetry.ReasonLabel(rejection.Reason)
	}
	return string(operation.Outcome)
}

// Package guardotel exports traces and metrics of Guards to OpenTelemetry:
//
//	telemetry, err := guardotel.NewObserver(nil) // on the global providers
//	…
//	g, err := fencekit.New(client, pool, &fencekit.Config{Guard: guard.Config{Observers: []*guard.Observer{telemetry}}})
//
// Each call of guard.Do, guard.Value and guard.Exec is a span, also those inside a guard.Hold.
// The function's context has it, so spans of the function are its children. Waiting, the
// grant, the claim, a rejection and the resolution of a COMMIT in doubt are events of the span;
// those of a guard.Hold itself are events of the span in the Hold's context.
//
// docs/guides/observability.md has tables of the attributes, the events and the metrics. Spans have the
// names of resources; metrics have their classes only.
//
// Not covered: a Locker or an election that is used without a Guard. A paused process reports
// only once it is resumed.
package guardotel

// Package guardotel exports traces and metrics of Guards to OpenTelemetry:
//
//	telemetry, err := guardotel.NewObserver(nil) // on the global providers
//	…
//	g, err := fencekit.New(pool, &fencekit.Config{Guard: guard.Config{Observers: []*guard.Observer{telemetry}}})
//
// Each call of guard.Do, guard.Value and guard.Exec is a span, also those inside a guard.Hold, and
// in the function's context. The events of a guard.Hold itself are of the span in the Hold's context.
//
// Attributes of a span: fence.resources and fence.resource.class; fence.tokens, those of the last run;
// guard.operation.name and guard.operation.id (guard.OpName, guard.OpID); guard.batch_size from 2 on;
// guard.outcome, guard.runs, guard.read_only; error.type, the reason of a rejection or the outcome.
//
// Events: guard.queued and guard.dequeued (the wait for the turn), fence.acquired, guard.claimed,
// guard.rejected (with the reason, the stage, and who had the fence), guard.resolved and
// guard.unresolved (a COMMIT in doubt).
//
// The metrics are those of guardprometheus under OpenTelemetry's names: fence.leases_lost for
// fence_leases_lost_total. docs/operate.md has a table of them. Spans have the names of resources;
// metrics have their classes only.
//
// Not covered: a Locker or an election that is used without a Guard. A paused process reports
// only once it is resumed.
package guardotel

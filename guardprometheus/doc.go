// Package guardprometheus exports metrics of Guards to Prometheus:
//
//	metrics, err := guardprometheus.NewObserver(prometheus.DefaultRegisterer, nil)
//	…
//	g, err := fencekit.New(client, pool, &fencekit.Config{Guard: guard.Config{Observers: []*guard.Observer{metrics}}})
//
// docs/guides/observability.md has a table of the metrics. They are labelled by the class of
// the resource, which is the part of its name before the first slash, and never by the resource.
//
// Not promised: what goes on in a Locker or an election that no Guard uses, and what a Guard
// without this Observer does. A process that was stopped reports what it did when it goes on.
package guardprometheus
